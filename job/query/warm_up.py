"""How long the first intervals of a JVM last.

Between two intervals no record is read until Spark has planned and started the next one. In a new
JVM this takes twice as long as later, because the JVM interprets most of this code. With intervals
of one minute it would remain slow for minutes. So the first intervals are short if the topics have
records. In them the JVM compiles the code.
"""

from datetime import timedelta

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job.join_spec.sides import SIDES
from job.query.runtime import QueryRun
from job.spark.interval_duration import set_interval_duration

SHORT_INTERVAL = timedelta(seconds=1)
SHORT_INTERVALS = 8
# Of both topics. With fewer records a pause delays few results.
RECORDS_MIN = 1_000

_log = structlog.get_logger()


class WarmUp:
    """The durations of intervals, over all runs of the query."""

    def __init__(self) -> None:
        self._spark: SparkSession | None = None
        self._remaining = 0
        """Number of short intervals that are still to be planned."""
        self._full = self._current = SHORT_INTERVAL

    def begin_run(self, run: QueryRun) -> None:
        """Called before a query is started with the checkpoint interval of the plan."""
        assert run.plan.real_time is not None
        self._full = self._current = run.plan.real_time.checkpoint_interval
        if run.spark is not self._spark:
            self._spark = run.spark
            self._remaining = SHORT_INTERVALS if _records(run) >= RECORDS_MIN else 0

    def plan_interval(self, query: StreamingQuery) -> None:
        """Set the duration of the interval that is planned. Called on the query's thread."""
        duration = self._full
        if self._remaining > 0:
            self._remaining -= 1
            duration = min(SHORT_INTERVAL, self._full)
        if duration == self._current:
            return
        assert self._spark is not None
        try:
            set_interval_duration(query, self._spark, duration)
            self._current = duration
        except Exception as error:
            # Spark has changed. The next intervals last as long as the last one.
            self._remaining = 0
            _log.exception("warm_up_not_possible", reason=str(error).partition("\n")[0])


def _records(run: QueryRun) -> int:
    """Records before the next offsets of both topics. The totals would not include the last batch
    yet, which Spark reports on another thread."""
    partitions = run.stats.partitions
    return sum(
        partition.next_offset for side in SIDES for partition in partitions.side(side).values()
    )
