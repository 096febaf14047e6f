"""Closes the state stores that Spark keeps open in its JVM after the end of a query.

Otherwise their memory is released by the maintenance of the next query, which first writes
snapshots into the old checkpoint.

Private API of Spark 4.3.0 (StateStore): see the package docstring. The behaviour is tested by
tests/semantics/test_state_stores.py.
"""

from typing import Any

from pyspark.sql import SparkSession

from job.jvm_class import jvm_class

_STORES = "org.apache.spark.sql.execution.streaming.state.StateStore$"


def close_state_stores(spark: SparkSession) -> None:
    """Close all state stores of the driver's JVM. No task may run."""
    jvm: Any = spark._jvm
    stores = jvm_class(jvm, "java.lang.Class").forName(_STORES).getField("MODULE$").get(None)
    # Running maintenance acquires the lock of the stores, which stop() holds while it waits.
    stores.stopMaintenanceTaskWithoutLock()
    stores.stop()
