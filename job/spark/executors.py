"""The executors of the running application.

Private API of Spark 4.3.0 (SparkContext): see the package docstring. The behaviour is tested by
tests/integration/test_cluster.py.
"""

from pyspark.sql import SparkSession


def executor_count(spark: SparkSession) -> int:
    """Number of executors that have registered, without the driver."""
    context = spark.sparkContext._jsc.sc()
    return int(context.getExecutorMemoryStatus().size()) - 1


def core_count(spark: SparkSession) -> int:
    """Number of tasks that can run at once."""
    return int(spark.sparkContext._jsc.sc().defaultParallelism())
