"""Reports of the job that are not part of a batch: brokers, event times, state, reset."""

from collections.abc import Mapping
from datetime import datetime
from typing import Self

from pydantic import BaseModel, ConfigDict

from job.spec.sides import Side
from job.spec.start_positions import StartPositions

_SAMPLE_KEYS_MAX = 3
_PART_CHARS_MAX = 100


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class SideOffsets(_Report):
    """Offsets per partition of a topic. None: unknown."""

    topic: str
    new_topics: list[str] = []
    """Topics that match the side's topic_pattern and were created after the start of the query."""
    read: dict[int, int] | None = None
    """Next offset to read, after the last batch."""
    earliest: dict[int, int] | None = None
    """Offset of the oldest record that retention has kept."""
    latest: dict[int, int] | None = None
    """Offset of the next record to be committed."""

    @property
    def behind_latest(self) -> dict[int, int] | None:
        """Offsets that are not read. Records that were deleted before do not count."""
        if self.read is None or self.latest is None:
            return None
        first = self.earliest or {}
        return {
            p: max(0, end - max(self.read.get(p, 0), first.get(p, 0)))
            for p, end in self.latest.items()
        }

    @property
    def retention_headroom(self) -> dict[int, int] | None:
        """Offsets between the oldest record and the next to read. Below 0: records were deleted
        unread."""
        if self.read is None or self.earliest is None:
            return None
        return {p: self.read[p] - first for p, first in self.earliest.items() if p in self.read}


class SideEventTimes(_Report):
    """Event time of the records read of a side, in milliseconds since 1970."""

    event_time_ms: int | None = None
    """Event time from which the watermark of the side is computed. None: unknown, so the
    watermark does not advance."""
    held_back_by: int | None = None
    """Partition with unread records that determines `event_time_ms`. None: no backlog."""
    partitions: dict[int, int] = {}
    """Newest event time read, per partition."""


class BrokerReport(_Report):
    """Result of the job's last poll of the brokers, a few seconds old at most."""

    left: SideOffsets
    right: SideOffsets
    output: SideOffsets
    """Offsets of the output topic: only `latest` is known."""
    answered_at: datetime | None = None
    """Time of the brokers' last response."""
    error: str | None = None
    """Reason why the last poll failed."""

    def side(self, side: Side) -> SideOffsets:
        return self.left if side == "left" else self.right

    def with_read(self, read: Mapping[Side, Mapping[int, int]] | None) -> "BrokerReport":
        """With these next offsets, of a query that is stopped. None: with its own."""
        if read is None:
            return self
        sides: dict[str, SideOffsets] = {
            side: self.side(side).model_copy(update={"read": dict(of_side)})
            for side, of_side in read.items()
        }
        return self.model_copy(update=sides)


class LatencyReport(_Report):
    """Latency of records in the batches of the last minutes (job/protocol/latency.py)."""

    p50_seconds: float
    """Half of the records have at most this latency."""
    p99_seconds: float
    """99 % of the records have at most this latency."""


class PartitionCount(_Report):
    partition: int
    """State partition, not a partition of the topic."""
    rows: int
    """Rows in state."""
    unmatched_rows: int | None
    """Rows without a match so far. Null: the join does not store which rows have matched."""
    event_time_min: datetime | None
    """Oldest event time. Null: there is no row."""


class SideCount(_Report):
    rows: int
    """Rows in state."""
    unmatched_rows: int | None
    """Rows without a match so far. Null: the join does not store which rows have matched."""
    partitions: list[PartitionCount]
    """The same per state partition."""
    stored_ids: int | None = None
    """Ids that `deduplicate` has in state. Null: the side is not deduplicated."""
    sample_keys: list[list[str | None]] = []
    """Parts of the keys of up to three rows, as text of at most 100 characters."""

    @property
    def oldest(self) -> datetime | None:
        """Oldest event time in state. None: there is no row."""
        times = [part.event_time_min for part in self.partitions]
        return min((time for time in times if time is not None), default=None)

    @classmethod
    def of(
        cls,
        partitions: list[PartitionCount],
        sample_keys: list[list[str | None]],
        stored_ids: int | None = None,
    ) -> Self:
        unmatched = [part.unmatched_rows for part in partitions]
        known = [rows for rows in unmatched if rows is not None]
        return cls(
            rows=sum(part.rows for part in partitions),
            unmatched_rows=sum(known) if len(known) == len(unmatched) else None,
            partitions=partitions,
            stored_ids=stored_ids,
            sample_keys=[
                [None if part is None else part[:_PART_CHARS_MAX] for part in key]
                for key in sample_keys[:_SAMPLE_KEYS_MAX]
            ],
        )


class StateCount(_Report):
    """Rows in join state, counted one by one in the checkpoint."""

    batch_id: int
    """The state is the one at the end of this batch."""
    counted_at: datetime
    """Time of the count."""
    duration_seconds: float
    """Duration of the count."""
    left: SideCount
    """Rows of the left side."""
    right: SideCount
    """Rows of the right side."""

    @property
    def rows(self) -> int:
        return self.left.rows + self.right.rows

    def side(self, side: Side) -> SideCount:
        return self.left if side == "left" else self.right


class ChangeReport(_Report):
    """The replay after a change of the join."""

    old_checkpoint: str
    """Checkpoint of the query that this one replaces."""
    phase: str
    """`reading`, `taking_over` or `over`. Until `over`, results are kept back."""
    records: int
    """Records that are read again. `input_records` includes them."""
    records_left: int
    """Records of the replay that are not read yet."""
    possibly_late_records: int
    """Records of the replay of which the job cannot detect whether they were late in the old query.
    Their rows are joined."""
    offsets: dict[Side, dict[str, int]]
    """Offsets at which the old query has stopped, by side and partition. With several topics
    `topic/partition`."""


class FilterChangeReport(_Report):
    """The last time that a restart has changed a filter of the spec."""

    changed_at: datetime
    """Start of the query that reads with the present filters."""
    offsets: dict[Side, dict[str, int]]
    """The query has read the records before these offsets with other filters, by side and
    partition. With several topics `topic/partition`."""


class ChangeRequestReport(_Report):
    """The last change of the join, or its undo: made, pending, or refused."""

    # The fields with a default are required in the description of the HTTP API.
    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    requested_by: str
    """Client that sent the command. `the job`: a table is read again, because its topic may have
    lost tombstones."""
    requested_at: datetime
    """Time of the command."""
    checkpoint: str | None
    """Checkpoint of the new query. Null: an undo was requested."""
    made_at: datetime | None = None
    """Time at which the change was made. Null while the request is pending, and after a failure."""
    failed_at: datetime | None = None
    """Time of the failure; the previous query continues. Null while the request is pending."""
    error: str | None = None
    """Reason if the change was not made."""
    waits_for: str | None = None
    """What the change waits for, in words, with its progress. Until then the old query runs, and
    pause, stop and restart cancel the change. Null: it does not wait."""
    repeated_interval: int | None = None
    """The change waits until the old query has repeated this interrupted interval. Null: it waits
    for no interval."""
    records_left: int | None = None
    """Records that the old query has not repeated yet. Null: not known, or none."""


class CommandReport(_Report):
    """A command that the job has accepted."""

    # The fields with a default are required in the description of the HTTP API.
    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    verb: str
    """pause, resume, stop, restart, reset, change, undo or cancel. `reset` is also a change of
    offsets."""
    by: str
    """Name and address of the client, `user:NAME` for a user of the machine of the job."""
    at: datetime
    """Time of the command."""
    reason: str | None = None
    """Reason that the client has given. Null: none."""


class ResetReport(_Report):
    """The last reset."""

    requested_by: str
    requested_at: datetime
    starts: StartPositions
    completed_at: datetime | None = None
    """Null: the reset is not completed yet."""
    old_checkpoint: str | None = None
    """Where the old checkpoint was moved. Null: there was no checkpoint."""
    error: str | None = None
