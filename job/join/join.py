"""The joins: Spark's operator, and the processor in Java (join/processor.py).

A query calls its join only through the members of Join. How a query reads, in micro-batches or in
intervals, is a separate choice.
"""

from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from job.join.live_watermark import LiveWatermark
from job.join.processor import RowCounts, processor_join
from job.plan.plan import JoinPlan
from job.spark.observed_metrics import Counted, observed
from job.spark.watermark import pass_late_watermark
from job.spec.join_conditions import JoinOperator


class Join(Protocol):
    """The join of one run of the query."""

    @property
    def output_mode(self) -> str:
        """Of the query in micro-batches."""

    @property
    def passes_dead_letters(self) -> bool:
        """Whether dead letters of input records pass through the join, between its results."""

    @property
    def counts(self) -> RowCounts | None:
        """Late rows and the growth of the state. None: Spark reports them with each batch."""

    def joined(self, left: DataFrame, right: DataFrame, plan: JoinPlan) -> DataFrame:
        """The columns of both sides: of a pair, or of an unmatched row, where those of the other
        side are null. If dead letters pass, also DEAD_LETTER. Of an anti join also the pairs."""

    @property
    def live(self) -> LiveWatermark | None:
        """The watermark that advances within intervals. None: the run has no intervals."""

    @property
    def counted(self) -> Counted:
        """How rows are counted, so that their numbers are known during an interval."""

    def begin_batch(self, query: StreamingQuery, spark: SparkSession) -> None:
        """Called with each micro-batch of the query, before its rows are computed. `spark`: the
        session of the batch."""

    def close(self) -> None:
        """Call it when the query has ended."""


class SparkJoin:
    """Dead letters do not pass: the operator accepts only rows that it joins. Separate branches for
    them would read both topics twice in every batch (delivery/dead_letter_writer.py)."""

    output_mode = "append"
    passes_dead_letters = False
    counts = None
    live = None
    counted = staticmethod(observed)

    def joined(self, left: DataFrame, right: DataFrame, plan: JoinPlan) -> DataFrame:
        sides = {"left": left, "right": right}
        first, second = (sides[side] for side in plan.inputs)
        return first.join(second, on=F.expr(plan.on), how=plan.spark_join_type)

    def begin_batch(self, query: StreamingQuery, spark: SparkSession) -> None:
        pass

    def close(self) -> None:
        pass


class StreamJoin:
    output_mode = "update"
    passes_dead_letters = True

    def __init__(
        self,
        spark: SparkSession,
        plan: JoinPlan,
        *,
        as_interval: bool,
        in_intervals: bool = False,
        late_at_least_ms: int = 0,
        heap_bytes: int = 0,
    ) -> None:
        """`as_interval`: the watermark of a batch decides which of its rows are late, as in an
        interval. In micro-batches Spark uses the watermark of the previous batch, and
        `late_at_least_ms` is that of the interval before them. `in_intervals`: the run has
        intervals. `heap_bytes`: as for `processor_join`.

        Raises SetupError if the processor was built from other sources.
        """
        self.counts = RowCounts(spark, plan)
        self.live = LiveWatermark(spark, plan.inputs) if in_intervals else None
        self.counted: Counted = self.counts.counted if in_intervals else observed
        self._as_interval = as_interval
        self._late_at_least_ms = late_at_least_ms
        self._heap_bytes = heap_bytes

    def joined(self, left: DataFrame, right: DataFrame, plan: JoinPlan) -> DataFrame:
        return processor_join(
            *(left, right, plan),
            as_interval=self._as_interval,
            counts=self.counts,
            live_run=0 if self.live is None else self.live.run,
            heap_bytes=self._heap_bytes,
        )

    def begin_batch(self, query: StreamingQuery, spark: SparkSession) -> None:
        pass_late_watermark(query, spark, self._late_at_least_ms)

    def close(self) -> None:
        self.counts.close()
        if self.live is not None:
            self.live.close()


def join_of(
    spark: SparkSession,
    plan: JoinPlan,
    *,
    as_interval: bool = False,
    in_intervals: bool = False,
    late_at_least_ms: int = 0,
) -> Join:
    """The arguments are as for StreamJoin."""
    if plan.operator is JoinOperator.SPARK:
        return SparkJoin()
    return StreamJoin(
        *(spark, plan),
        as_interval=as_interval,
        in_intervals=in_intervals,
        late_at_least_ms=late_at_least_ms,
    )
