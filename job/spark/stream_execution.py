"""The execution of a running query, which PySpark's StreamingQuery hides."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery


def stream_execution(query: StreamingQuery) -> Any:
    """The MicroBatchExecution of the query."""
    return query._jsq.streamingQuery()


def batch_execution(query: StreamingQuery) -> Any:
    """The IncrementalExecution of the current batch, or of the last one."""
    return stream_execution(query).lastExecution()


@contextmanager
def progress_lock(query: StreamingQuery) -> Iterator[Any]:
    """Hold the lock under which Spark plans and commits batches; yields the MicroBatchExecution."""
    execution = stream_execution(query)
    lock = execution.awaitProgressLock()
    lock.lock()
    try:
        yield execution
    finally:
        lock.unlock()


def plan_nodes(plan: Any, name: str) -> Iterator[Any]:
    """The nodes of class `name` in a plan, top-down."""
    if plan.getClass().getSimpleName() == name:
        yield plan
    children = plan.children()
    for number in range(children.size()):
        yield from plan_nodes(children.apply(number), name)
