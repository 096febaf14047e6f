"""The executors of the running application.

Private API of Spark 4.3.0 (SparkContext, TaskScheduler): see the package docstring. The behaviour
is tested by tests/integration/test_cluster.py.
"""

from pyspark.sql import SparkSession

from job.jvm_class import jvm_class


def executor_count(spark: SparkSession) -> int:
    """Number of executors that have registered, without the driver."""
    context = spark.sparkContext._jsc.sc()
    return int(context.getExecutorMemoryStatus().size()) - 1


def slot_count(spark: SparkSession) -> int:
    """Number of tasks that can run at once. Spark's default parallelism is another number: at least
    two, and the user may set it."""
    context = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


def core_count(spark: SparkSession) -> int:
    """Cores of all executors. A local master has the cores of its JVM, however many task slots it
    has."""
    context = spark.sparkContext._jsc.sc()
    if not context.isLocal():
        return slot_count(spark)
    runtime = jvm_class(spark._jvm, "java.lang.Runtime").getRuntime()
    return min(slot_count(spark), int(runtime.availableProcessors()))


def running_task_count(spark: SparkSession) -> int:
    """Number of running tasks, including those that are cancelled and have not ended yet."""
    return int(spark.sparkContext._jsc.sc().taskScheduler().rootPool().runningTasks())
