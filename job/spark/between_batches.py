"""Ends or holds a running query between two batches, for which Spark has no call.

Private API of Spark 4.3.0 (MicroBatchExecution), pinned by tests/integration/test_lifecycle.py.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

_TRY_MILLISECONDS = 200
_PAUSE_SECONDS = 0.01

_log = structlog.get_logger()


def finish(query: StreamingQuery, grace: timedelta) -> None:
    """Let the batch at work end, then end the query; after `grace` it is interrupted.

    stop() alone would interrupt the batch, and a batch cut short after it has written is written
    again by the next start. MicroBatchExecution asks whether its state is active in two places:
    before each batch, and before a planned batch gets its first task. So the state is set first,
    and a batch runs to its end or writes nothing.
    """
    begin_no_more(query)
    if not query.awaitTermination(math.ceil(grace.total_seconds())):
        _log.warning("batch_interrupted", after_seconds=grace.total_seconds())
    query.stop()


class Hold:
    """Between two batches of a query; whoever has it decides what comes next."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query

    def end(self) -> None:
        """No batch is begun any more when the hold is over; `finish` the query then."""
        begin_no_more(self._query)


@contextmanager
def held(spark: SparkSession, query: StreamingQuery, grace: timedelta) -> Iterator[Hold | None]:
    """Inside of it the query rests between two batches, ready to go on at once; None where the
    batch at work did not end within `grace`, or the query has ended.

    MicroBatchExecution plans a batch, and notes that it has ended, under its progress lock, a fair
    one. It is held when it was got at a moment when no planned batch is left to run.
    """
    execution = query._jsq.streamingQuery()
    lock = execution.awaitProgressLock()
    if not _got(spark, query, lock, execution, grace):
        yield None
        return
    try:
        yield Hold(query)
    finally:
        with suppress(Exception):  # the JVM, and the lock with it, may be gone
            lock.unlock()


def _got(
    spark: SparkSession, query: StreamingQuery, lock: Any, execution: Any, grace: timedelta
) -> bool:
    assert spark._jvm is not None
    milliseconds = spark._jvm.java.util.concurrent.TimeUnit.MILLISECONDS
    deadline = time.monotonic() + grace.total_seconds()
    while time.monotonic() < deadline and query.isActive:
        if lock.tryLock(_TRY_MILLISECONDS, milliseconds):
            if _is_between_batches(execution):
                return True
            lock.unlock()
        time.sleep(_PAUSE_SECONDS)
    return False


def _is_between_batches(execution: Any) -> bool:
    """Every planned batch is noted as ended."""
    planned, ended = (
        log.getLatestBatchId() for log in (execution.offsetLog(), execution.commitLog())
    )
    return bool(planned.equals(ended))


def begin_no_more(query: StreamingQuery) -> None:
    """Let the running batch be the last one of the query."""
    execution = query._jsq.streamingQuery()
    terminated = (
        execution.getClass()
        .getClassLoader()
        .loadClass("org.apache.spark.sql.execution.streaming.runtime.TERMINATED$")
        .getField("MODULE$")
        .get(None)
    )
    execution.state().set(terminated)
