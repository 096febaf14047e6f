"""The rows of one side that reach a join, after the filters that Spark's optimizer moves below it.

Spark counts late rows there. Private API of Spark 4.3.0: see the package docstring. The behaviour
is tested by tests/integration/test_dead_letters.py.
"""

from typing import Any

from pyspark.sql import DataFrame

from job.join_spec.sides import SIDES, Side
from job.spark.stream_execution import plan_nodes


def join_input(joined: DataFrame, side: Side) -> DataFrame:
    """The child on `side` of the join in the optimized plan of `joined`."""
    spark = joined.sparkSession
    join = next(plan_nodes(joined._jdf.queryExecution().optimizedPlan(), "Join"))
    child = join.children().apply(SIDES.index(side))
    jvm: Any = spark._jvm
    rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, child)
    return DataFrame(rows, spark)
