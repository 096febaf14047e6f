"""Number of rows that the running interval of real-time mode has read.

Spark reports a batch when it has ended. The metrics of its operators arrive before that, with the
heartbeats of the executors. Private API of Spark 4.3.0, pinned by tests/integration/
test_real_time.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job.jvm_class import jvm_class
from job.spark.stream_execution import stream_execution
from job.spec.sides import Side

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
        self._executions = jvm_class(spark._jvm, "org.apache.spark.sql.execution.SQLExecution")
        self._query = query
        self._planned: Any = None
        self._execution_id: int | None = None
        self._metrics: list[int] = []

    def rows(self) -> LiveRows | None:
        """None: no interval runs."""
        context = stream_execution(self._query).getLatestExecutionContext()
        execution = context.executionPlan()
        if execution is None:
            return None
        # Once for each plan: it has thirty nodes, and each call of py4j costs time.
        if not execution.equals(self._planned):
            self._planned = execution
            self._execution_id = None
            self._metrics = _output_rows(execution.executedPlan())
        if self._execution_id is None:
            self._execution_id = self._id_of(execution)
        if self._execution_id is None:
            return None
        return LiveRows(context.batchId(), self._read(self._execution_id))

    def _id_of(self, execution: Any) -> int | None:
        """Id of the running execution. None: Spark has not started it yet."""
        first = max(0, self._store.executionsCount() - _EXECUTIONS_SEARCHED)
        # Spark refuses a length of 0, also if it has not recorded an execution yet.
        executions = self._store.executionsList(first, _EXECUTIONS_SEARCHED)
        for index in reversed(range(executions.size())):
            number: int = executions.apply(index).executionId()
            if execution.equals(self._executions.getQueryExecution(number)):
                return number
        return None

    def _read(self, execution_id: int) -> dict[Side, int]:
        """Rows of each side. Spark omits a metric without a row."""
        texts = self._store.executionMetrics(execution_id)
        counts = [texts.get(metric) for metric in self._metrics]
        return {
            side: int(text.get().replace(",", "")) if text.isDefined() else 0
            for side, text in zip(self._inputs, counts, strict=True)
        }


def _output_rows(plan: Any) -> list[int]:
    """Ids of the metrics that count the rows of the sources, in the plan's order."""
    ids: list[int] = []
    pending = [plan]
    while pending:
        node = pending.pop()
        if node.getClass().getSimpleName() == _SCAN:
            ids.append(node.metrics().apply("numOutputRows").id())
        children = node.children()
        pending += [children.apply(index) for index in reversed(range(children.size()))]
    return ids
