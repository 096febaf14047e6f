"""Latency: from the Kafka timestamp of a record to the end of the batch that read it. Pure.

Estimated within a batch: the records are assumed to be spread evenly between the oldest and the
newest timestamp, because reading the timestamp of each record would be too expensive.

The batches of a replay do not count: the old query has delivered the results of their records.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Self

from pydantic import BaseModel, ConfigDict

from job.protocol.progress import BatchProgress, SideProgress
from job.protocol.reports import LatencyReport

# A record waits for the running batch to end and then for its own: fine buckets for short batches,
# coarse ones up to the delay after a restart or a burst.
LATENCY_SECONDS_BOUNDS = (
    0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0,
)  # fmt: skip

# The quantiles are of recent batches: an idle query has no newer ones, and would report the latency
# of its last backlog indefinitely.
LATENCY_WINDOW = timedelta(minutes=5)


class Latencies(BaseModel):
    """Histogram of the latencies since the job started."""

    model_config = ConfigDict(frozen=True)

    seconds: float = 0
    """Sum of all latencies."""
    counts: list[int] = [0] * (len(LATENCY_SECONDS_BOUNDS) + 1)
    """Records per bucket of LATENCY_SECONDS_BOUNDS; the last bucket is unbounded."""

    def plus(self, side: SideProgress, ended_at: datetime) -> Self:
        spread = _Spread.of(side, ended_at)
        if spread is None:
            return self
        up_to = [round(spread.records_up_to(bound)) for bound in LATENCY_SECONDS_BOUNDS]
        counts = [
            count + above - below
            for count, below, above in zip(
                self.counts, [0, *up_to], [*up_to, side.records], strict=True
            )
        ]
        seconds = self.seconds + side.records * (spread.shortest + spread.longest) / 2
        return self.model_copy(update={"seconds": seconds, "counts": counts})


def latency_report(batches: Iterable[BatchProgress]) -> LatencyReport | None:
    """Latency of the records of these batches, without those of a replay. None: they read none."""
    spreads = [
        spread
        for batch in batches
        if not batch.is_replay
        for side in (batch.left, batch.right)
        if (spread := _Spread.of(side, batch.ended_at)) is not None
    ]
    if not spreads:
        return None
    return LatencyReport(
        p50_seconds=_quantile(spreads, 0.5),
        p99_seconds=_quantile(spreads, 0.99),
    )


@dataclass(frozen=True)
class _Spread:
    """Latencies of the records of one side in one batch, in seconds."""

    records: int
    shortest: float
    longest: float

    @classmethod
    def of(cls, side: SideProgress, ended_at: datetime) -> Self | None:
        """None: the side read no record, or no record with a timestamp."""
        oldest, newest = side.record_time_min_ms, side.record_time_max_ms
        if not side.records or oldest is None or newest is None:
            return None
        end = ended_at.timestamp()
        # Negative if the producer's clock is ahead.
        return cls(side.records, max(0.0, end - newest / 1000), max(0.0, end - oldest / 1000))

    def records_up_to(self, bound: float) -> float:
        """Number of records whose latency is at most `bound`."""
        if bound >= self.longest:
            return self.records
        if bound <= self.shortest:
            return 0.0
        return self.records * (bound - self.shortest) / (self.longest - self.shortest)


def _quantile(spreads: Sequence[_Spread], share: float) -> float:
    """Latency that this share of the records does not exceed, in seconds, to the millisecond."""
    wanted = share * sum(spread.records for spread in spreads)
    longest_ms = ceil(1000 * max(spread.longest for spread in spreads))
    return (
        bisect_left(
            range(longest_ms),
            wanted,
            key=lambda ms: sum(spread.records_up_to(ms / 1000) for spread in spreads),
        )
        / 1000
    )
