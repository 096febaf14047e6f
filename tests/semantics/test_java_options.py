"""Options of the JVM, compared with those of Spark."""

from pyspark.sql import SparkSession

from job.jvm_command import JAVA_OPTIONS

LEFT_OUT = {"--add-modules=jdk.incubator.vector"}


def test_options_are_those_that_spark_submit_adds(spark: SparkSession) -> None:
    theirs = spark._jvm.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptionArray()
    assert set(JAVA_OPTIONS) == set(theirs) - LEFT_OUT
