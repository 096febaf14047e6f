"""Trims the Hadoop settings that Spark serializes for each task.

Private API of Hadoop and Spark 4.3.0 (Configuration.updatingResource, SparkHadoopUtil), pinned by
tests/semantics/test_hadoop_settings.py.
"""

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

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
    # This class would otherwise be loaded with the first file on HDFS, and reload all files.
    jvm.java.lang.Class.forName("org.apache.hadoop.hdfs.HdfsConfiguration")
    io = jvm.java.io
    kept = jvm.org.apache.hadoop.conf.Configuration(False)
    for name in _FILES:
        kept.addResource(name)
    written = io.ByteArrayOutputStream()
    kept.write(io.DataOutputStream(written))
    settings = context.hadoopConfiguration()
    settings.readFields(io.DataInputStream(io.ByteArrayInputStream(written.toByteArray())))
    # As Spark does for a new session: these settings survive a reload by another class.
    util = jvm.org.apache.spark.deploy.SparkHadoopUtil.get()
    util.appendS3AndSparkHadoopHiveConfigurations(context.sc().conf(), settings)
    _forget_origins(settings)


def _forget_origins(settings: JavaObject) -> None:
    """Clear the origins of all settings, for which Hadoop has no public call."""
    origins = settings.getClass().getDeclaredField("updatingResource")
    origins.setAccessible(True)
    origins.get(settings).clear()
