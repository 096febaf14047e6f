"""How long intervals last, and the catch-up between them, over all runs of the query. Pure.

Between two intervals no record is read until Spark has planned and started the next one. In a new
JVM this takes twice as long as later, because the JVM interprets most of this code. With long
intervals it would remain slow for minutes. So the first intervals are short if the topics have
records. In them the JVM compiles the code.

On a busy machine the code is not compiled in time, and the rows of an interval wait longer and
longer. Then micro-batches follow, which need less CPU time, and after some time short intervals
again.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Self

from job.plan.real_time import (
    BEHIND_LONGEST,
    CATCH_UP_MIN,
    CATCH_UP_MIN_LONGEST,
    RECORDS_BEHIND_MAX,
    is_behind,
)

SHORT_INTERVAL = timedelta(seconds=1)
"""The first interval. Each of the next ones lasts twice as long as the one before."""
SHORT_INTERVALS = 5
# Of both topics. With fewer records a pause delays few results.
RECORDS_MIN = 1_000


@dataclass(frozen=True)
class Pacing:
    """Clock times are seconds of a clock that never goes back."""

    full: timedelta = SHORT_INTERVAL
    """The checkpoint interval of the plan."""
    current: timedelta = SHORT_INTERVAL
    """Duration of the interval that was planned last."""
    short_intervals: int = 0
    """Number of short intervals that are still to be planned."""
    catch_up_min: timedelta = CATCH_UP_MIN
    """Shortest time of the next catch-up that follows an interval."""
    catch_up_until: float = 0.0
    """Clock time before which no catch-up ends."""

    def of_run(self, full: timedelta, new_jvm_records: int | None) -> Self:
        """For a run in intervals, which Spark begins with the checkpoint interval of the plan.

        `new_jvm_records`: records of both topics that the query has read, if the JVM has not run
        intervals yet. None: it has.
        """
        begun = replace(self, full=full, current=full)
        if new_jvm_records is None:
            return begun
        short = SHORT_INTERVALS if new_jvm_records >= RECORDS_MIN else 0
        return replace(begun, short_intervals=short, catch_up_min=CATCH_UP_MIN)

    def fell_behind(self, now: float) -> Self:
        """After an interval that has left too many records unread: a catch-up follows."""
        return replace(
            self,
            short_intervals=SHORT_INTERVALS,
            catch_up_min=min(2 * self.catch_up_min, CATCH_UP_MIN_LONGEST),
            catch_up_until=now + self.catch_up_min.total_seconds(),
        )

    def kept_up(self) -> Self:
        """After an interval that has left few records unread."""
        is_full = self.current == self.full
        return replace(self, catch_up_min=CATCH_UP_MIN) if is_full else self

    def allows_intervals(self, now: float) -> bool:
        """Whether a catch-up may end."""
        return now >= self.catch_up_until

    def refused(self, current: timedelta) -> Self:
        """After Spark has not taken a duration: its intervals last as long as `current`."""
        return replace(self, current=current, short_intervals=0)

    def next_interval(self) -> Self:
        """For the interval that is planned; `current` is its duration."""
        if self.short_intervals == 0:
            return replace(self, current=self.full)
        duration = SHORT_INTERVAL * 2 ** (SHORT_INTERVALS - self.short_intervals)
        return replace(
            self, current=min(duration, self.full), short_intervals=self.short_intervals - 1
        )


@dataclass(frozen=True)
class Lag:
    """The records that a running interval has not read yet."""

    began_at: float | None = None
    """Clock time since which too many are unread. None: few are."""
    ends: int = 0
    """Sum of the ends of both topics at that time."""

    def looked(self, now: float, unread: int, ends: int) -> "Lag":
        if unread <= RECORDS_BEHIND_MAX:
            return Lag()
        return self if self.began_at is not None else Lag(now, ends)

    def is_too_long(self, now: float, unread: int, ends: int) -> bool:
        """Whether the interval does not keep up."""
        if self.began_at is None:
            return False
        took = timedelta(seconds=now - self.began_at)
        received = ends - self.ends
        return took >= BEHIND_LONGEST and is_behind(unread, received=received, duration=took)
