"""Reports the running interval of the real-time engine to the statistics, which Spark does not.

The figures are those of the last heartbeats of the tasks. A report counts as progress only while
the executors of all running tasks send heartbeats, with or without records. A task that does not
read in an executor that sends heartbeats is visible by the lag, which grows.
"""

from contextlib import AbstractContextManager

import structlog
from pyspark.sql.streaming.query import StreamingQuery

from job.join.processor import RowCounts
from job.protocol.totals import LiveFigures
from job.query.repeated import repeated
from job.query.runtime import QueryRun
from job.spark.live_rows import LiveInterval, LiveRows
from job.spec.sides import SIDES

LIVE_SECONDS = 1.0

_log = structlog.get_logger()


class LiveReports:
    def __init__(self, run: QueryRun, query: StreamingQuery, counts: RowCounts) -> None:
        self._stats = run.stats
        self._counts = counts
        self._interval = LiveInterval(run.spark, query, run.plan.inputs)
        self._batch_id: int | None = None

    def active(self) -> AbstractContextManager[None]:
        """Context with a report every LIVE_SECONDS."""
        return repeated(
            lambda _: self.report(), every_seconds=LIVE_SECONDS, name="live-rows", failed=_unknown
        )

    def report(self) -> None:
        rows = self._interval.rows()
        if rows is not None:
            figures, is_alive = self._figures(rows), self._counts.tasks_are_alive()
            self._stats.interval_runs(rows.batch_id, figures, is_alive=is_alive)

    def _figures(self, rows: LiveRows) -> LiveFigures:
        if rows.batch_id != self._batch_id:
            self._batch_id = rows.batch_id
            self._counts.begin_interval()
        counted = {side: self._counts.in_interval(side) for side in SIDES}
        return LiveFigures(
            read=dict(rows.read),
            observed=self._counts.observed_in_interval(),
            late_rows=sum(late for late, _ in counted.values()),
            newest_ms={side: newest for side, (_, newest) in counted.items()},
        )


def _unknown(reason: str) -> None:
    """The query continues; its figures change at the end of the interval."""
    _log.warning("live_rows_unknown", reason=reason)
