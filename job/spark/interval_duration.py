"""Sets how long the next intervals of real-time mode last, for which Spark has no public call.

Spark's trigger has one duration. Spark copies it into the plan of the query, into the relation of
each source, and reads it there when it plans an interval.

Private API of Spark 4.3.0 (MicroBatchExecution): see the package docstring. The behaviour is tested
by tests/integration/test_real_time.py.
"""

from datetime import timedelta

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job.jvm_class import jvm_class
from job.spark.stream_execution import plan_nodes, stream_execution
from job.spec.durations import milliseconds


def set_interval_duration(query: StreamingQuery, spark: SparkSession, duration: timedelta) -> None:
    """To be called on the query's thread, before Spark plans the next interval."""
    trigger = jvm_class(spark._jvm, "org.apache.spark.sql.execution.streaming.RealTimeTrigger")
    # Not an Option of a Python int: py4j would convert a small number to Integer instead of Long.
    option = trigger.unapply(trigger.create(f"{milliseconds(duration)} milliseconds"))
    plan = stream_execution(query).logicalPlan()
    for source in plan_nodes(plan, "StreamingDataSourceV2ScanRelation"):
        relation = source.relation()
        field = relation.getClass().getDeclaredField("realTimeModeDuration")
        field.setAccessible(True)
        field.set(relation, option)
