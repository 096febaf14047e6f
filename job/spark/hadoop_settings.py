"""Hadoop's settings, as Spark hands them to each task."""

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

# What says how a file system is reached. Files that are not there are passed over.
_FILES = ("core-default.xml", "core-site.xml", "hdfs-default.xml", "hdfs-site.xml")


def make_light(spark: SparkSession) -> None:
    """Keep of the session's settings what a file system is reached by, and what Spark was told.

    Spark's join writes all of them whenever its plan node is copied, eight times a batch, each with
    the files that it comes from in a gzip stream of its own: a quarter of the CPU time of the
    query's thread (bench/README.md). Of 1,100 settings 721 are defaults of YARN and MapReduce,
    which were read for the sake of their classes; where the others come from nobody asks.

    For a session that nothing uses yet: meanwhile the settings are not whole.
    """
    jvm, context = spark._jvm, spark.sparkContext._jsc
    assert jvm is not None
    assert context is not None
    # Loaded later, with the first file on HDFS, it would have all files read again.
    jvm.java.lang.Class.forName("org.apache.hadoop.hdfs.HdfsConfiguration")
    io = jvm.java.io
    kept = jvm.org.apache.hadoop.conf.Configuration(False)
    for name in _FILES:
        kept.addResource(name)
    written = io.ByteArrayOutputStream()
    kept.write(io.DataOutputStream(written))
    settings = context.hadoopConfiguration()
    settings.readFields(io.DataInputStream(io.ByteArrayInputStream(written.toByteArray())))
    # As Spark does for a new session: they outlast what Hadoop reads again for another class.
    util = jvm.org.apache.spark.deploy.SparkHadoopUtil.get()
    util.appendS3AndSparkHadoopHiveConfigurations(context.sc().conf(), settings)
    _forget_origins(settings)


def _forget_origins(settings: JavaObject) -> None:
    """Hadoop has no call for it; what has no origin is written without one."""
    origins = settings.getClass().getDeclaredField("updatingResource")
    origins.setAccessible(True)
    origins.get(settings).clear()
