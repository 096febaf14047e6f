"""Registers the SQL function `in_time_zone(zone, expression)`: the expression in another time zone.

Spark evaluates all expressions of a session in one time zone. Two sides of a join can have two, and
results have UTC. See InTimeZone.java. Private API of Spark 4.3.0: see the package docstring.
"""

from pyspark.sql import SparkSession

from job.spark.java_classes import java_class
from job.sql.time_zones import UTC


def register_in_time_zone(spark: SparkSession, time_zone: str) -> None:
    """Register it in this session and those that a streaming query clones from it, unless
    `time_zone` is UTC, which needs no function."""
    if time_zone == UTC:
        return
    function = java_class(spark, "InTimeZone")
    registry = spark._jsparkSession.sessionState().functionRegistry()
    registry.createOrReplaceTempFunction(function.NAME, function.builder(), "scala_udf")
