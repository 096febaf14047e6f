"""A DataFrame with a plan that Spark has optimized.

Before each interval of real-time mode Spark optimizes the plan of the query again, while no record
is read. The optimizer takes less time for its own result.

Private API of Spark 4.3.0: see the package docstring. The behaviour is tested by
tests/integration/test_real_time.py.
"""

from typing import Any

from pyspark.sql import DataFrame


def optimized(rows: DataFrame) -> DataFrame:
    """The same rows."""
    spark = rows.sparkSession
    optimizer = spark._jsparkSession.sessionState().optimizer()
    plan = optimizer.execute(rows._jdf.queryExecution().analyzed())
    jvm: Any = spark._jvm
    result = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)
    return DataFrame(result, spark)
