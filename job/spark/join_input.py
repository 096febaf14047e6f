"""The rows of one side that reach a join, after the filters that Spark's optimizer moves below it.

Spark counts late rows there. Private API of Spark 4.3.0: see the package docstring. The behaviour
is tested by tests/integration/test_dead_letters.py.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from job.jvm_class import jvm_class
from job.spark.stream_execution import plan_nodes
from job.spec.sides import Side


def join_input(joined: DataFrame, side: Side, inputs: Sequence[Side]) -> DataFrame:
    """The child on `side` of the join in the optimized plan of `joined`.

    `inputs`: the sides in the order of the join's children.
    """
    spark = joined.sparkSession
    join = next(plan_nodes(joined._jdf.queryExecution().optimizedPlan(), "Join"))
    child = join.children().apply(inputs.index(side))
    jvm: Any = spark._jvm
    rows = jvm_class(jvm, "org.apache.spark.sql.classic.Dataset").ofRows(
        spark._jsparkSession, child
    )
    return DataFrame(rows, spark)
