"""The query: GET /v1/query, and what the commands respond with."""

from datetime import datetime
from typing import Any, Self

from job.api.freshness import is_recent, live_brokers
from job.api.view import View
from job.protocol.progress import BatchProgress
from job.protocol.reports import (
    BrokerReport,
    ChangeReport,
    ChangeRequestReport,
    CommandReport,
    FilterChangeReport,
    LatencyReport,
    ResetReport,
)
from job.protocol.status import Failure, JobStatus, Phase, QueryState, utc_time
from job.spec.engine import Engine
from job.spec.sides import Side
from job.spec.start_positions import SideStartPositions


class BatchView(View):
    batch_id: int
    """Spark's number of the batch, counted from 0 in each checkpoint."""
    started_at: datetime
    """Start of the batch."""
    duration_seconds: float
    """Duration of the batch, without a pause of the query."""
    phase_seconds: dict[str, float]
    """Duration of each phase; trigger_execution is the whole batch."""
    input_records: int
    """Records read from both topics."""
    output_records: int
    """Results written."""
    late_rows: int
    """Rows dropped because they were behind the watermark."""
    state_rows: int | None
    """Rows in join state after the batch, both sides. Null after a start until the first count:
    30 s, or up to 30 minutes while a backlog is read."""
    state_memory_bytes: int
    """Memory of the state stores."""

    @classmethod
    def of(cls, batch: BatchProgress) -> Self:
        return cls(**{name: getattr(batch, name) for name in cls.model_fields})


class BrokersView(View):
    reachable: bool
    """Whether the brokers answered the job's last poll, at most a minute ago."""
    answered_at: datetime | None
    """Last answer of the brokers."""
    error: str | None
    """Error of the last poll."""

    @classmethod
    def of(cls, report: BrokerReport, now: datetime) -> Self:
        return cls(
            reachable=is_recent(report, now), answered_at=report.answered_at, error=report.error
        )


class ResetView(View):
    requested_by: str
    """Client that sent the command."""
    requested_at: datetime
    """Time of the command."""
    left: SideStartPositions
    """Start of reading: earliest, latest, a time, or the next offset of each partition."""
    right: SideStartPositions
    """The same for the right side."""
    completed_at: datetime | None
    """End of the reset; null while it is pending."""
    old_checkpoint: str | None
    """Location of the old checkpoint; null if there was none."""
    error: str | None
    """Reason if the reset failed."""

    @classmethod
    def of(cls, report: ResetReport) -> Self:
        fields = report.model_dump(exclude={"starts"})
        return cls(**fields, left=report.starts.left, right=report.starts.right)


class SideView(View):
    topic: str | None
    """Topic of the side, or its topics separated by commas."""
    new_topics: list[str]
    """Topics that match `topic_pattern` and were created after the start of the query. A restart
    of the query reads them."""
    input_records: int
    """Records read since the job started."""
    filtered_records: int
    """Records that the side's filter dropped."""
    null_key_records: int
    """Records with a null in their key."""
    duplicate_rows: int
    """Rows dropped as duplicates of an earlier row (`deduplicate`)."""
    stored_ids: int | None
    """Ids in the state of `deduplicate` at the last count, `state_counted_at`. Null before the
    first count, and without `deduplicate`."""
    skipped_records: int
    """Records that Kafka deleted before they were read, and that `checkpoint skip-gap` has skipped,
    since the checkpoint began."""
    bad_records: dict[str, int]
    """Records that could not be read, per reason."""
    dead_letter_records: dict[str, int]
    """Records sent to the dead-letter topic, per reason, including late rows and null keys."""
    event_time_max: datetime | None
    """Newest event time since the job started."""
    watermark: datetime | None
    """Event time minus watermark_delay; the query's watermark follows the older of both sides. With
    a backlog the event time is that of the partition with unread records that is furthest behind,
    otherwise it is the newest one."""
    idle: bool | None
    """Whether the side is idle, so that its watermark follows the clock. Null without idle_after,
    or if the query is not running."""
    offsets_behind_latest: dict[str, int] | None
    """Unread offsets per partition (with several topics per `topic/partition`); null while the
    brokers are unreachable."""
    offsets_behind_latest_total: int | None
    """Sum over the partitions."""
    state_rows: int | None
    """Rows in join state at the last count, `state_counted_at`."""
    unmatched_rows: int | None
    """Rows in join state without a match, at the same time. Null also if the join type does not
    emit unmatched rows of this side."""

    @classmethod
    def of(cls, side: Side, status: JobStatus, now: datetime) -> Self:
        totals, brokers = status.side_totals(side), live_brokers(status, now)
        count = status.state_count.side(side) if status.state_count else None
        behind = brokers.side(side).behind_latest if brokers else None
        return cls(
            topic=status.brokers.side(side).topic if status.brokers else None,
            new_topics=status.brokers.side(side).new_topics if status.brokers else [],
            input_records=totals.records,
            filtered_records=totals.filtered_records,
            null_key_records=totals.null_keys,
            duplicate_rows=totals.duplicates,
            stored_ids=count.stored_ids if count else None,
            skipped_records=totals.skipped_records,
            bad_records=totals.bad_records,
            dead_letter_records=status.totals.dead_letters[side],
            event_time_max=utc_time(totals.event_time_max_ms),
            watermark=status.side_watermark(side),
            idle=status.idle.get(side),
            offsets_behind_latest=status.labelled(side, behind),
            offsets_behind_latest_total=None if behind is None else sum(behind.values()),
            state_rows=count.rows if count else None,
            unmatched_rows=count.unmatched_rows if count else None,
        )


class OutputView(View):
    topic: str | None
    """Topic of the results."""
    end_offsets: dict[str, int] | None
    """Offset per partition behind the last record that readers of committed records can read; null
    while the brokers are unreachable."""
    end_offsets_total: int | None
    """Sum over the partitions."""
    bad_results: dict[str, int]
    """Results that could not be written since the job started, per reason."""

    @classmethod
    def of(cls, status: JobStatus, now: datetime) -> Self:
        brokers = live_brokers(status, now)
        ends = brokers.output.latest if brokers else None
        return cls(
            topic=status.brokers.output.topic if status.brokers else None,
            end_offsets=None if ends is None else {str(number): ends[number] for number in ends},
            end_offsets_total=None if ends is None else sum(ends.values()),
            bad_results=status.totals.results_left_out,
        )


class QueryView(View):
    name: str
    """Name of the query, as in the spec."""
    join_type: str
    """Join type of the spec."""
    delivery: str
    """exactly_once or at_least_once."""
    engine: Engine
    """Engine of the spec."""
    state: QueryState
    """State of the query."""
    diagnosis: str
    """One sentence: how many results were written, or why few or none were."""
    allowed_commands: list[str]
    """Commands that the state of the query allows and that this client may send. A command without
    effect is allowed, except for `undo` and `cancel` without a change."""
    phase: Phase | None
    """catch_up: the query runs in micro-batches. real_time: in intervals of Spark's real-time mode.
    loading_table: it reads the table to its end, and not yet the stream. Null if the query is not
    running, or if the engine is micro_batch and no table is read."""
    table: Side | None
    """Side that is a table. Null: both are streams."""
    table_records_left: int | None
    """Offsets of the table that are read before the stream. Null: no table is read."""
    query_id: str | None
    """Spark's id of the query; survives restarts."""
    run_id: str | None
    """Spark's id of the run; new with each start."""
    state_since: datetime
    """Time of the last change of the state."""
    started_at: datetime
    """Start of the job's process."""
    uptime_seconds: float
    """Age of the job's process."""
    last_progress_at: datetime | None
    """Last progress: a batch, no new data, or a running interval whose tasks send heartbeats."""
    last_batch: BatchView | None
    """The last batch that ended."""
    watermark: datetime | None
    """Watermark of the query: the watermark of the slower side. Older rows are late."""
    watermark_delay_seconds: float | None
    """Configured delay of the side that determines the watermark: the watermark is at least this
    far behind the clock. Null without a watermark."""
    watermark_held_back_by: Side | None
    """Side with the older or missing event time; null if both are equal or both missing, or if a
    side is idle."""
    watermark_held_back_by_partition: int | str | None
    """Partition of that side with unread records and the oldest event time; null if the side has no
    backlog. With several topics `topic/partition`."""
    late_rows: int
    """Rows dropped since the job started because they were behind the watermark."""
    output_records: int
    """Results written since the job started."""
    matched_results: int
    """Results of matched rows: `output_records` without `unmatched_results`."""
    unmatched_results: int
    """Results of unmatched rows, which are also in `output_records`."""
    filtered_results: int
    """Results that output.filter dropped."""
    latency: LatencyReport | None
    """From the Kafka timestamp of a record to the end of the batch that read the record and wrote
    its matches, over the batches that ended in the last five minutes, at most 100; interpolated
    between the oldest and the newest record of a batch. Batches that read records again after a
    change do not count. Null if the other batches read no record, or if the engine is real_time:
    most of its results are visible before their interval ends."""
    left: SideView
    """The left side."""
    right: SideView
    """The right side."""
    output: OutputView
    """The output topic."""
    state_counted_at: datetime | None
    """Time of the last count of the rows in join state."""
    brokers: BrokersView | None
    """Answer of the brokers to the job's last poll; null before the first poll."""
    last_reset: ResetView | None
    """The last reset or change of offsets."""
    last_change: ChangeRequestReport | None
    """The last change of the join, or its undo: made, pending, or refused, also in an earlier run
    of the job, and by `streamjoin change`. Null: there was none."""
    change: ChangeReport | None
    """Replay after a change of the join. Null: the query replaces no other query."""
    filter_change: FilterChangeReport | None
    """The last restart that has changed a filter. Null: none, or no query has started."""
    last_failure: Failure | None
    """The last failure since the job started."""
    commands: list[CommandReport]
    """The last 20 accepted commands, also of earlier runs of the job, oldest first."""

    @classmethod
    def of(cls, status: JobStatus, now: datetime) -> Self:
        last, totals = status.last_batch, status.totals
        fields: dict[str, object] = {
            "uptime_seconds": (now - status.started_at).total_seconds(),
            "last_batch": BatchView.of(last) if last else None,
            "watermark_delay_seconds": _delay_seconds(status),
            "late_rows": totals.late_rows,
            "output_records": totals.output_records,
            "matched_results": totals.matched_results,
            "unmatched_results": totals.unmatched_results,
            "filtered_results": totals.filtered_results,
            "left": SideView.of("left", status, now),
            "right": SideView.of("right", status, now),
            "output": OutputView.of(status, now),
            "state_counted_at": status.state_count.counted_at if status.state_count else None,
            "brokers": BrokersView.of(status.brokers, now) if status.brokers else None,
            "last_reset": ResetView.of(status.last_reset) if status.last_reset else None,
        }
        same = QueryView.model_fields.keys() - fields.keys()
        return cls(**fields, **{name: getattr(status, name) for name in same})

    def side(self, side: Side) -> SideView:
        return self.left if side == "left" else self.right


def _delay_seconds(status: JobStatus) -> float | None:
    if status.watermark is None:
        return None
    slower = status.watermark_held_back_by
    delays = status.watermark_delay_ms
    return (min(delays.values()) if slower is None else delays[slower]) / 1000


class RestartView(QueryView):
    spec_file: str
    """Which spec the query continues with: the job has read its spec file again."""

    @classmethod
    def after(cls, status: JobStatus, now: datetime, spec_file: str) -> Self:
        query = QueryView.of(status, now)
        fields = {name: getattr(query, name) for name in QueryView.model_fields}
        return cls(**fields, spec_file=spec_file)


class PlanView(View):
    text: str
    """The plan as `streamjoin plan` prints it."""
    facts: dict[str, Any]
    """The plan as `streamjoin plan --json` prints it."""
