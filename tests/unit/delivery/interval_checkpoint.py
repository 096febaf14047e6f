"""The checkpoint of a modelled query: Spark's logs and state, and the record of an interval."""

from dataclasses import dataclass, field, replace

from tests.unit.delivery.interval_join import Offsets, State


@dataclass(frozen=True)
class Recorded:
    """The checkpoint's record of an interval (event_time/interval.py)."""

    batch_id: int
    watermark: int
    repeat_until: Offsets | None = None

    def is_repeated(self, offsets: Offsets) -> bool:
        return self.repeat_until is not None and all(
            offset >= end for offset, end in zip(offsets, self.repeat_until, strict=True)
        )


@dataclass
class Checkpoint:
    planned: dict[int, tuple[Offsets, int]] = field(default_factory=dict)
    """Spark's offset log: end offsets and watermark of a batch."""
    committed: dict[int, int] = field(default_factory=dict)
    """Spark's commit log: watermark of the batch after it."""
    states: dict[tuple[int, int], State] = field(default_factory=dict)
    """State after a batch, by batch and slot."""
    recorded: Recorded | None = None
    newest: tuple[int, int] = (0, 0)
    """Newest event time of each side. A crash may lose the last ones."""
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
        """The watermark with which Spark starts."""
        return max(self.watermark(self.last), self.committed.get(self.last, 0))

    @property
    def cut(self) -> Recorded | None:
        """As Checkpoint.interrupted_interval."""
        recorded = self.recorded
        if recorded is None:
            return None
        if recorded.batch_id > self.last:
            ended = self.planned.get(recorded.batch_id)
            if recorded.repeat_until is None and ended is not None:
                return replace(recorded, repeat_until=ended[0])
            return recorded
        is_over = recorded.repeat_until is None or recorded.is_repeated(self.offsets)
        return None if is_over else recorded
