"""The checkpoint of a modelled query: Spark's logs and state, and the record of an interval."""

from dataclasses import dataclass, field, replace

from job.event_time import partitions
from job.event_time.interval import Interval
from job.event_time.partitions import Partitions, RecordedEventTimes
from tests.unit.delivery.interval_join import SIDES, Offsets, State


def by_partition(offsets: Offsets) -> partitions.Offsets:
    """The offsets as the driver has them. A topic has one partition here."""
    return {side: {0: offset} for side, offset in zip(SIDES, offsets, strict=True)}


@dataclass
class Checkpoint:
    planned: dict[int, tuple[Offsets, int]] = field(default_factory=dict)
    """Spark's offset log: end offsets and watermark of a batch."""
    committed: dict[int, int] = field(default_factory=dict)
    """Spark's commit log: watermark of the batch after it."""
    states: dict[tuple[int, int], State] = field(default_factory=dict)
    """State after a batch, by batch and slot."""
    recorded: Interval | None = None
    event_times: RecordedEventTimes = field(default_factory=RecordedEventTimes)
    """A crash may lose the last ones."""
    since: int | None = 0
    fence: int = 0
    """Number of the newest fence."""

    def copy(self) -> "Checkpoint":
        copied = replace(self)
        for name in ("planned", "committed", "states"):
            setattr(copied, name, dict(getattr(self, name)))
        return copied

    @property
    def last(self) -> int:
        return max(self.committed, default=-1)

    @property
    def offsets(self) -> Offsets:
        return self.planned[self.last][0] if self.committed else (0, 0)

    def watermark(self, batch_id: int) -> int:
        """The watermark of a planned batch."""
        return self.planned[batch_id][1] if batch_id in self.planned else 0

    @property
    def tracked(self) -> int:
        """The watermark with which Spark starts: that of the last batch that is planned."""
        last = max(self.planned, default=-1)
        return max(self.watermark(last), self.committed.get(last, 0))

    @property
    def partitions(self) -> Partitions:
        """As Checkpoint.partitions of the job."""
        read = by_partition(self.offsets) if self.committed else None
        return Partitions.restored(self.event_times, read)

    @property
    def cut(self) -> Interval | None:
        """As Checkpoint.interrupted_interval of the job."""
        recorded = self.recorded
        if recorded is None:
            return None
        if recorded.batch_id > self.last:
            ended = self.planned.get(recorded.batch_id)
            if recorded.repeat_until is None and ended is not None:
                return recorded.repeated_until(by_partition(ended[0]))
            return recorded
        is_over = recorded.repeat_until is None or recorded.is_repeated(by_partition(self.offsets))
        return None if is_over else recorded
