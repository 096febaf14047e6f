"""What the job finds out beside the batches: at the brokers, in the state, when it is reset."""

from collections.abc import Mapping
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from job.join_spec.start_positions import StartPositions


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True)


class SideOffsets(_Report):
    """Of each partition of a topic; null where it is not known."""

    topic: str
    read: dict[int, int] | None = None
    """The next offset to read, as of the last batch that ended."""
    earliest: dict[int, int] | None = None
    """The oldest record that retention has left."""
    latest: dict[int, int] | None = None
    """The offset that the next committed record will have."""

    @property
    def behind_latest(self) -> dict[int, int] | None:
        if self.read is None or self.latest is None:
            return None
        return {p: max(0, end - self.read.get(p, 0)) for p, end in self.latest.items()}

    def with_rows_read(self, rows: int) -> "SideOffsets":
        """As if so many rows more had been read, of each partition its share. An estimate: it is
        not known which partitions they come from."""
        behind = self.behind_latest
        if behind is None or self.read is None or not any(behind.values()):
            return self
        share = min(1.0, rows / sum(behind.values()))
        read = {p: at + int(behind.get(p, 0) * share) for p, at in self.read.items()}
        return self.model_copy(update={"read": read})

    @property
    def retention_headroom(self) -> dict[int, int] | None:
        """Records between the oldest one kept and the next to read; below 0 some were lost."""
        if self.read is None or self.earliest is None:
            return None
        return {p: self.read[p] - first for p, first in self.earliest.items() if p in self.read}


class SideEventTimes(_Report):
    """How far a side has been read in event time, in milliseconds since 1970."""

    event_time_ms: int | None = None
    """The event time by which the side lets the watermark advance; null: it does not let it."""
    held_back_by: int | None = None
    """The partition with unread records that decides it; null: the side has no backlog."""
    partitions: dict[int, int] = {}
    """Newest event time read of each partition."""


class BrokerReport(_Report):
    """What the job's own look at the brokers found, a few seconds ago at most."""

    left: SideOffsets
    right: SideOffsets
    answered_at: datetime | None = None
    """When the brokers last answered."""
    error: str | None = None
    """Why the last look failed."""

    def with_rows_read(self, rows: Mapping[str, int]) -> "BrokerReport":
        sides = {side: getattr(self, side).with_rows_read(count) for side, count in rows.items()}
        return self.model_copy(update=sides)


class PartitionCensus(_Report):
    partition: int
    rows: int
    unmatched: int | None
    """Rows without a match so far; null where the join need not know."""
    event_time_min: datetime | None


class StateCensus(_Report):
    """The rows held, counted one by one."""

    batch_id: int
    at: datetime
    seconds: float
    """What counting took."""
    left: list[PartitionCensus]
    right: list[PartitionCensus]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in (*self.left, *self.right))


class ResetReport(_Report):
    """What became of the last reset."""

    by: str
    asked_at: datetime
    starts: StartPositions
    done_at: datetime | None = None
    kept_aside: str | None = None
    """Where the old checkpoint is now; null where there was none."""
    error: str | None = None
