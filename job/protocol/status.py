"""Status of the job: its query's state, last batch, counters, watermarks, brokers. Pure."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from job.instants import from_epoch_ms
from job.protocol.progress import BatchProgress
from job.protocol.reports import (
    BrokerReport,
    ChangeReport,
    ChangeRequestReport,
    CommandReport,
    FilterChangeReport,
    LatencyReport,
    ResetReport,
    SideEventTimes,
    StateCount,
)
from job.protocol.totals import SideTotals, Totals
from job.spec.engine import Engine
from job.spec.sides import Side
from job.spec.source_topics import SourceTopics

T = TypeVar("T")


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class QueryState(StrEnum):
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"


class Phase(StrEnum):
    """What the query does: how that of the real-time engine runs, or that the table is read."""

    CATCH_UP = "catch_up"
    """In micro-batches: there is a backlog, or the query has just started."""
    REAL_TIME = "real_time"
    """In intervals of Spark's real-time mode."""
    LOADING_TABLE = "loading_table"
    """Of both engines: the table is read to its end, and not yet the stream."""


class Failure(_Value):
    code: str
    """Stable name of the error."""
    message: str
    """What failed, and the fix."""
    retryable: bool
    """Whether the job retries by itself."""
    at: datetime
    """Time of the failure."""


class JobStatus(_Value):
    name: str
    join_type: str
    delivery: str
    engine: Engine = Engine.MICRO_BATCH
    state: QueryState
    started_at: datetime
    """Start of the job's process."""
    state_since: datetime
    allowed_commands: list[str] = []
    """Verbs of the commands that the state allows."""
    watermark_delay_ms: dict[str, int]
    """Per side that is a stream."""
    topics: dict[str, list[str]] = {}
    """Names of the topics of each side with several topics or a topic_pattern, in the order of the
    spec, or in the order in which the starts have found them."""
    table: Side | None = None
    """Side that is a table. None: both are streams."""
    phase: Phase | None = None
    """Phase of the running query. None: it is not running, or the engine is micro_batch and no
    table is read."""
    table_records_left: int | None = None
    """Offsets of the table that are read before the stream. None: no table is read."""
    idle: dict[str, bool] = {}
    """Whether event time follows the clock, per side with `idle_after`; empty unless running."""
    query_id: str | None = None
    """Survives restarts. None: no batch has ended yet."""
    run_id: str | None = None
    """The current run, even before its first batch has ended."""
    last_batch: BatchProgress | None = None
    live_watermark_ms: int = 0
    """Watermark of the running interval, if it has advanced there."""
    last_progress_at: datetime | None = None
    """Time of the last report: a batch, a running interval whose tasks send heartbeats, or that no
    data was available."""
    last_failure: Failure | None = None
    commands: list[CommandReport] = []
    """The last accepted commands, in this run or earlier ones, oldest first."""
    totals: Totals = Totals()
    latency: LatencyReport | None = None
    """Latency of the records in the batches of the last minutes. None: they read no record, or the
    engine is real_time, whose results are visible before their interval ends."""
    diagnosis: str = ""
    """One sentence: how many results were written, or why few or none were."""
    event_times: dict[str, SideEventTimes] = {}
    """Per side, after the last batch. Empty: the query has not started yet."""
    brokers: BrokerReport | None = None
    """None: the brokers have not been polled yet."""
    state_count: StateCount | None = None
    """The last count of the state rows, in this run or an earlier one."""
    last_reset: ResetReport | None = None
    last_change: ChangeRequestReport | None = None
    """The last change or undo. None: there was none."""
    change: ChangeReport | None = None
    """Progress of the replay. None: the query replaces no other query."""
    filter_change: FilterChangeReport | None = None
    """None: no restart has changed a filter since the checkpoint began, or no query has started."""
    lineage_events: dict[str, int] | None = None
    """OpenLineage events since the job started, `sent` and `dropped`. None: no URL is set."""

    def side_totals(self, side: Side) -> SideTotals:
        return self.totals.left if side == "left" else self.totals.right

    def partition_label(self, side: Side, number: int) -> str:
        """The partition as users see it (SourceTopics.label)."""
        topics = self.topics.get(side)
        if topics is None:
            return str(number)
        topic, partition = SourceTopics(tuple(topics)).place(number)
        return f"{topic}/{partition}"

    def labelled(self, side: Side, by_number: Mapping[int, T] | None) -> dict[str, T] | None:
        if by_number is None:
            return None
        return {
            self.partition_label(side, number): by_number[number] for number in sorted(by_number)
        }

    @property
    def watermark(self) -> datetime | None:
        """The query's watermark: that of the last batch, or of the running interval, which
        advances. None: no batch has ended yet, or there is no watermark."""
        ended_ms = None if self.last_batch is None else self.last_batch.watermark_ms
        live_ms = self.live_watermark_ms
        return utc_time(max(ended_ms or 0, live_ms) if live_ms else ended_ms)

    def side_watermark(self, side: Side) -> datetime | None:
        """Event time of the side (rule in event_time/watermark.py) minus its watermark_delay.

        None: no event time of the side is known, or the side is a table.
        """
        times = self.event_times.get(side)
        event_time_ms = (
            self.side_totals(side).event_time_max_ms if times is None else times.event_time_ms
        )
        if event_time_ms is None or side not in self.watermark_delay_ms:
            return None
        return utc_time(event_time_ms - self.watermark_delay_ms[side])

    def slowest_partition(self, side: Side) -> int | None:
        """Partition whose unread records hold the side back. None: the side has no backlog."""
        times = self.event_times.get(side)
        return None if times is None else times.held_back_by

    @property
    def watermark_held_back_by(self) -> Side | None:
        """The side with the older watermark, or without one.

        None: the sides are equal, one is idle and follows the clock, or one is a table.
        """
        if any(self.idle.values()) or self.table is not None:
            return None
        left, right = self.side_watermark("left"), self.side_watermark("right")
        if left == right:
            return None
        if left is None or right is None:
            return "left" if left is None else "right"
        return "left" if left < right else "right"

    @property
    def watermark_held_back_by_partition(self) -> int | str | None:
        """Label of the partition of that side with unread records and the oldest event time.

        None: the side has no backlog, or no side holds the watermark back.
        """
        side = self.watermark_held_back_by
        number = None if side is None else self.slowest_partition(side)
        if side is None or side not in self.topics or number is None:
            return number
        return self.partition_label(side, number)


def utc_time(milliseconds: int | None) -> datetime | None:
    """From milliseconds since 1970."""
    return None if milliseconds is None else from_epoch_ms(milliseconds)
