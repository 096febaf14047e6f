"""How many rows the running interval of real-time mode has read so far.

Spark reports a batch when it has ended. The metrics of its operators arrive before that, with the
heartbeats of the executors. Private API of Spark 4.3.0, pinned by tests/integration/
test_real_time.py.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job.join_spec.sides import Side
from job.spark.stream_execution import stream_execution

_SCAN = "RealTimeStreamScanExec"
# Lookups run during an interval and are executions, too.
_EXECUTIONS_SEARCHED = 10


@dataclass(frozen=True)
class LiveRows:
    batch_id: int
    read: Mapping[Side, int]


class LiveInterval:
    """The running interval of a query."""

    def __init__(self, spark: SparkSession, query: StreamingQuery, inputs: Sequence[Side]) -> None:
        """`inputs`: the sides in the order in which the query reads them."""
        self._inputs = inputs
        self._store = spark._jsparkSession.sharedState().statusStore()
        self._query = query
        self._batch_id = -1
        self._metrics: list[int] = []

    def rows(self) -> LiveRows | None:
        """None: no interval runs, or no executor has reported yet."""
        context = stream_execution(self._query).getLatestExecutionContext()
        execution = context.executionPlan()
        if execution is None:
            return None
        if context.batchId() != self._batch_id:
            self._metrics = _output_rows(execution.executedPlan())
            self._batch_id = context.batchId()
        values = self._values(set(self._metrics))
        if values is None:
            self._batch_id = -1  # The plan may have been replaced.
            return None
        read = {
            side: values.get(metric, 0)
            for side, metric in zip(self._inputs, self._metrics, strict=True)
        }
        return LiveRows(context.batchId(), read)

    def _values(self, metrics: Set[int]) -> dict[int, int] | None:
        """The metrics of the execution that has one of these. A metric without a row is absent."""
        count = self._store.executionsCount()
        first = max(0, count - _EXECUTIONS_SEARCHED)
        executions = self._store.executionsList(first, count - first)
        for index in reversed(range(executions.size())):
            found = self._store.executionMetrics(executions.apply(index).executionId())
            values = {int(entry._1()): str(entry._2()) for entry in _each(found.iterator())}
            if metrics & values.keys():
                return {
                    name: int(text.replace(",", ""))
                    for name, text in values.items()
                    if text.replace(",", "").isdecimal()
                }
        return None


def _output_rows(plan: Any) -> list[int]:
    """Ids of the metrics that count the rows of the sources, in the plan's order."""
    found: list[int] = []
    pending = [plan]
    while pending:
        node = pending.pop()
        if node.getClass().getSimpleName() == _SCAN:
            found.append(node.metrics().apply("numOutputRows").id())
        children = node.children()
        pending += [children.apply(index) for index in reversed(range(children.size()))]
    return found


def _each(iterator: Any) -> Iterator[Any]:
    while iterator.hasNext():
        yield iterator.next()
