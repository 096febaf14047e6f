"""Trims the Hadoop settings that Spark serializes for each task.

Private API of Hadoop and Spark 4.3.0 (Configuration.updatingResource, SparkHadoopUtil): see the
package docstring. If it has changed, all settings are kept. The effect is tested by
tests/semantics/test_hadoop_settings.py.
"""

from typing import Any

from pyspark.sql import SparkSession

from job.jvm_class import jvm_class
from job.spark.lost_hooks import report_lost_hook

# Files with the settings of file systems. Missing files are skipped.
_FILES = ("core-default.xml", "core-site.xml", "hdfs-default.xml", "hdfs-site.xml")


def trim_hadoop_conf(spark: SparkSession) -> None:
    """Keep only the settings of file systems and those that Spark itself was given.

    Spark's join serializes all settings whenever its plan node is copied, eight times per batch,
    each with its origin as a gzip stream: a quarter of the CPU time of the query's thread
    (docs/benchmarks/results.md). Of 1,100 settings 721 are defaults of YARN and MapReduce, and the
    origins are not used.

    Call it before anything else uses the session: meanwhile the settings are incomplete.
    """
    jvm, context = spark._jvm, spark.sparkContext._jsc
    assert jvm is not None
    assert context is not None
    settings = context.hadoopConfiguration()
    before = _serialized(jvm, settings)
    try:
        _trim(jvm, context.sc().conf(), settings)
    except Exception as error:
        _replace(jvm, settings, before)
        report_lost_hook("hadoop_settings", error)


def _trim(jvm: Any, spark_conf: Any, settings: Any) -> None:
    # This class would otherwise be loaded with the first file on HDFS, and reload all files.
    jvm_class(jvm, "java.lang.Class").forName("org.apache.hadoop.hdfs.HdfsConfiguration")
    kept = jvm_class(jvm, "org.apache.hadoop.conf.Configuration")(False)
    for name in _FILES:
        kept.addResource(name)
    _replace(jvm, settings, _serialized(jvm, kept))
    # As Spark does for a new session: these settings survive a reload by another class.
    util = jvm_class(jvm, "org.apache.spark.deploy.SparkHadoopUtil").get()
    util.appendS3AndSparkHadoopHiveConfigurations(spark_conf, settings)
    _forget_origins(jvm, settings)


def _serialized(jvm: Any, settings: Any) -> Any:
    content = jvm_class(jvm, "java.io.ByteArrayOutputStream")()
    settings.write(jvm_class(jvm, "java.io.DataOutputStream")(content))
    return content.toByteArray()


def _replace(jvm: Any, settings: Any, content: Any) -> None:
    stream = jvm_class(jvm, "java.io.ByteArrayInputStream")(content)
    settings.readFields(jvm_class(jvm, "java.io.DataInputStream")(stream))


def _forget_origins(jvm: Any, settings: Any) -> None:
    """Remove the origins of all settings, for which Hadoop has no public call.

    A call of clear() would be Python's, which takes a second: it removes each entry by calls into
    the JVM.
    """
    origins = settings.getClass().getDeclaredField("updatingResource")
    origins.setAccessible(True)
    origins.set(settings, jvm_class(jvm, "java.util.concurrent.ConcurrentHashMap")())
