"""How long the first intervals of a JVM last, and how long a catch-up between intervals lasts.

Between two intervals no record is read until Spark has planned and started the next one. In a new
JVM this takes twice as long as later, because the JVM interprets most of this code. With intervals
of one minute it would remain slow for minutes. So the first intervals are short if the topics have
records. In them the JVM compiles the code.

On a busy machine the code is not compiled in time, and the rows of an interval wait longer and
longer. Then micro-batches follow, which need less CPU time, and after some time short intervals
again.
"""

import time
from datetime import timedelta

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job.join_spec.sides import SIDES
from job.plan.real_time import CATCH_UP_MIN, CATCH_UP_MIN_LONGEST
from job.query.runtime import QueryRun
from job.spark.interval_duration import set_interval_duration

SHORT_INTERVAL = timedelta(seconds=1)
"""The first interval. Each of the next ones lasts twice as long as the one before."""
SHORT_INTERVALS = 5
# Of both topics. With fewer records a pause delays few results.
RECORDS_MIN = 1_000

_log = structlog.get_logger()


class WarmUp:
    """The durations of intervals and of the catch-up between them, over all runs of the query."""

    def __init__(self) -> None:
        self._spark: SparkSession | None = None
        self._remaining = 0
        """Number of short intervals that are still to be planned."""
        self._full = self._current = SHORT_INTERVAL
        self._catch_up_min = CATCH_UP_MIN
        self._catch_up_until = 0.0

    def begin_run(self, run: QueryRun) -> None:
        """Called before a query is started with the checkpoint interval of the plan."""
        assert run.plan.real_time is not None
        self._full = self._current = run.plan.real_time.checkpoint_interval
        if run.spark is not self._spark:
            self._spark = run.spark
            self._catch_up_min = CATCH_UP_MIN
            self._remaining = SHORT_INTERVALS if _records(run) >= RECORDS_MIN else 0

    def fell_behind(self) -> None:
        """Called when a catch-up follows because an interval has left too many records unread."""
        self._catch_up_until = time.monotonic() + self._catch_up_min.total_seconds()
        self._catch_up_min = min(2 * self._catch_up_min, CATCH_UP_MIN_LONGEST)
        self._remaining = SHORT_INTERVALS

    def kept_up(self) -> None:
        """Called after an interval that has left few records unread."""
        if self._current == self._full:
            self._catch_up_min = CATCH_UP_MIN

    def allows_intervals(self) -> bool:
        """Whether a catch-up may end."""
        return time.monotonic() >= self._catch_up_until

    def plan_interval(self, query: StreamingQuery) -> None:
        """Set the duration of the interval that is planned. Called on the query's thread."""
        duration = self._full
        if self._remaining > 0:
            duration = min(SHORT_INTERVAL * 2 ** (SHORT_INTERVALS - self._remaining), self._full)
            self._remaining -= 1
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
