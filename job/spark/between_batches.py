"""Pauses or stops a running query between two batches, for which Spark has no public call.

Private API of Spark 4.3.0 (MicroBatchExecution): see the package docstring. The behaviour is tested
by tests/integration/test_lifecycle.py.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job.jvm_class import jvm_class
from job.spark.stream_execution import stream_execution
from job.waiting import wait_until

_LOCK_MILLISECONDS = 200
# The thread of a query ends a moment after the query.
_THREAD_MILLISECONDS = 1_000
_PAUSE_SECONDS = 0.01

_log = structlog.get_logger()


def stop_gracefully(query: StreamingQuery, grace: timedelta) -> None:
    """Let the current batch end, then stop the query; after `grace` the batch is interrupted.

    stop() alone would interrupt the batch, and the next start would write an interrupted batch
    again. MicroBatchExecution checks whether its state is active before each batch, and before the
    first task of a planned batch. So the state is set first: a batch either runs to its end or
    writes nothing.
    """
    prevent_next_batch(query)
    query.awaitTermination(math.ceil(grace.total_seconds()))
    # The call above returns True also after a timeout, because the query is no longer active.
    thread = stream_execution(query).queryExecutionThread()
    thread.join(_THREAD_MILLISECONDS)
    if thread.isAlive():
        _log.warning("batch_interrupted", after_seconds=grace.total_seconds())
    query.stop()


def stop_at_once(query: StreamingQuery) -> None:
    """Stop the query, and interrupt its current batch."""
    prevent_next_batch(query)
    query.stop()


class Pause:
    """A query that is paused between two batches."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query

    def prevent_next_batch(self) -> None:
        """Begin no batch after the pause. Call `stop_gracefully` then."""
        prevent_next_batch(self._query)


@contextmanager
def pause_between_batches(
    spark: SparkSession, query: StreamingQuery, grace: timedelta
) -> Iterator[Pause | None]:
    """Pause the query between two batches. It can continue immediately.

    Yields None if the current batch did not end within `grace`, or if the query has ended.
    MicroBatchExecution plans batches, and commits them, under its progress lock, a fair one. The
    query is paused only if the lock was acquired while no planned batch was pending.
    """
    execution = stream_execution(query)
    lock = execution.awaitProgressLock()
    if not _lock_between_batches(spark, query, lock, execution, grace):
        yield None
        return
    try:
        yield Pause(query)
    finally:
        with suppress(Exception):  # the JVM, and the lock with it, may be gone
            lock.unlock()


def _lock_between_batches(
    spark: SparkSession, query: StreamingQuery, lock: Any, execution: Any, grace: timedelta
) -> bool:
    assert spark._jvm is not None
    milliseconds = jvm_class(spark._jvm, "java.util.concurrent.TimeUnit").MILLISECONDS
    locked = False

    def is_over() -> bool:
        nonlocal locked
        if not query.isActive:
            return True
        if lock.tryLock(_LOCK_MILLISECONDS, milliseconds):
            locked = _is_between_batches(execution)
            if not locked:
                lock.unlock()
        return locked

    wait_until(is_over, grace.total_seconds(), _PAUSE_SECONDS)
    return locked


def _is_between_batches(execution: Any) -> bool:
    """Whether every planned batch is committed."""
    planned, committed = (
        log.getLatestBatchId() for log in (execution.offsetLog(), execution.commitLog())
    )
    return bool(planned.equals(committed))


def prevent_next_batch(query: StreamingQuery) -> None:
    """Make the current batch the last one of the query."""
    execution = stream_execution(query)
    terminated = (
        execution.getClass()
        .getClassLoader()
        .loadClass("org.apache.spark.sql.execution.streaming.runtime.TERMINATED$")
        .getField("MODULE$")
        .get(None)
    )
    execution.state().set(terminated)
