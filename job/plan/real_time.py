"""Plan of `engine: real_time`, and specs that the engine refuses.

Spark's real-time mode runs all stages of a long batch, an interval, at the same time and passes
each row on when it arrives. A backlog is read in micro-batches on the same checkpoint.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType

from job.errors import Problem
from job.plan import tuning
from job.spec.durations import duration_text, milliseconds
from job.spec.engine import CHECKPOINT_INTERVAL_MIN, Engine, RealTimeSpec
from job.spec.output import Delivery
from job.spec.spec import JoinSpec

# Micro-batches follow an interval that leaves more records unread than these, and more than the
# topics receive in this time. The pause between two intervals is shorter. On a busy machine rows
# that wait longer than this would wait longer and longer: row by row, a join needs more CPU time
# per row than in batches, most of all until the JVM has compiled its code.
RECORDS_BEHIND_MAX = 10_000
BEHIND_MAX = timedelta(seconds=5)
# An interval is interrupted that has been behind for this long, if its repetition repeats nothing.
BEHIND_LONGEST = timedelta(seconds=30)
# Shortest time of the catch-up that follows. It doubles each time, until an interval of full length
# keeps up. In micro-batches the JVM has time to compile the code that the intervals have used.
CATCH_UP_MIN = timedelta(seconds=20)
CATCH_UP_MIN_LONGEST = timedelta(minutes=5)
# Most records of both topics that a micro-batch may leave unread if intervals follow.
CAUGHT_UP_RECORDS = 50_000
# Longest duration of that batch: the records of about this time are unread when intervals begin.
CAUGHT_UP_BATCH = timedelta(seconds=2)
# If the batches that leave few records unread have taken this long in total, intervals follow after
# a longer batch, too: on a busy machine batches may never be shorter.
CAUGHT_UP_BATCHES = timedelta(seconds=30)

# Slots in addition to those of an interval's tasks. Without one, a lookup would wait until the
# interval ends.
LOOKUP_SLOTS = 1
# With a local master, for partitions that are added to a topic. More of them need another JVM.
SPARE_SLOTS = 3

CONF: Mapping[str, str] = MappingProxyType(
    {
        # A partition of the join without rows evicts rows, too.
        "spark.shuffle.manager.incremental": "streamjoin.TickingShuffleManager",
        # Executors report the rows of a running interval with it; Spark's default is 10 s.
        "spark.executor.heartbeatInterval": "2s",
        "spark.sql.streaming.realTimeMode.minBatchDuration": (
            f"{CHECKPOINT_INTERVAL_MIN // timedelta(seconds=1)}s"
        ),
        # Does not delay the optimizing compiler: in real time, methods are called less often per
        # second than in a batch, and would reach its thresholds late.
        tuning.DRIVER_OPTIONS: tuning.driver_options(),
    }
)
"""Spark conf in addition to that of tuning.py."""

_HAND_OVER = "spark.shuffle.streaming.networkBufferMaxWaitTimeMs"
# A task hands its rows to the next stage at the latest after this; Spark's default of 50 ms would
# be most of the latency. With exactly-once delivery the transactions take ten times as long.
_HAND_OVER_MS: Mapping[Delivery, str] = {Delivery.AT_LEAST_ONCE: "2", Delivery.EXACTLY_ONCE: "5"}


def conf(delivery: Delivery) -> Mapping[str, str]:
    return {**CONF, _HAND_OVER: _HAND_OVER_MS[delivery]}


CATCH_UP_CONF: Mapping[str, str] = MappingProxyType(
    {
        # Each run loads the state. From a changelog, 130,000 rows took 20 s on 2 slow cores before
        # the first result of an interval. Without it, a batch of the catch-up writes the changed
        # files of RocksDB, which the interval only opens.
        tuning.CHANGELOG: "false",
    }
)
"""Spark conf of micro-batches in place of that of tuning.py."""


@dataclass(frozen=True)
class RealTimePlan:
    checkpoint_interval: timedelta
    commit_interval: timedelta
    """Longest time until the transaction of a result is committed. At-least-once delivery does not
    use it."""


# Longest time that a fetch waits in the broker. tuning.py has 10 ms, because the offset requests of
# a micro-batch wait behind a fetch. In an interval that is 100 fetches per second and partition.
_FETCH_WAIT_MAX_MS = 500
# With exactly-once delivery a result waits for its transaction anyway. So a fetch waits for this
# part of a commit interval for more records than one, at most until it has these bytes. Fetches of
# one record took a third of the CPU time of a join of 5,000 records/s a side, more than those of
# partitions without records.
_FETCH_WAITS_PER_COMMIT = 5
_FETCH_BYTES = 16_384


def source_options(delivery: Delivery, plan: RealTimePlan) -> Mapping[str, str]:
    """Options of the sources during an interval, in place of those of tuning.py."""
    if delivery is Delivery.AT_LEAST_ONCE:
        return {"kafka.fetch.max.wait.ms": str(_FETCH_WAIT_MAX_MS)}
    wait_ms = milliseconds(plan.commit_interval) // _FETCH_WAITS_PER_COMMIT
    return {
        "kafka.fetch.max.wait.ms": str(min(wait_ms, _FETCH_WAIT_MAX_MS)),
        "kafka.fetch.min.bytes": str(_FETCH_BYTES),
    }


SINK_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        # A result is sent at once.
        "kafka.linger.ms": "0",
    }
)
"""Options of Spark's Kafka sink during an interval, in place of those of tuning.py."""


TRANSACTION_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        # A commit sends all waiting records. Until then the records of a partition share a request.
        "kafka.linger.ms": "20",
        # A record that the broker does not accept within this time fails the transaction.
        "kafka.delivery.timeout.ms": "60000",
    }
)
"""Options of the producers of exactly-once delivery, in place of those of tuning.py."""

WAITING_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        # An answer that is lost is missed after this time, by default after 30 s. In an interval
        # the run then ends, and the next one takes some seconds: results are visible again within
        # 15 s. A broker that stalls for longer costs a restart of the run and no result.
        "kafka.request.timeout.ms": "5000",
    }
)
"""Further options of these producers with engine real_time. Other joins keep Kafka's default, which
suffices for large results on a slow network."""


def real_time_plan(spec: JoinSpec) -> RealTimePlan | None:
    """None: the engine is micro_batch."""
    if spec.engine is not Engine.REAL_TIME:
        return None
    settings = spec.real_time or RealTimeSpec()
    return RealTimePlan(settings.checkpoint_interval, settings.commit_interval)


def unsupported(spec: JoinSpec) -> Iterator[Problem]:
    """Problems of a spec that its engine cannot run."""
    if spec.engine is not Engine.REAL_TIME:
        return
    settings = spec.real_time or RealTimeSpec()
    if spec.output.delivery is Delivery.AT_LEAST_ONCE and settings.has_commit_interval:
        yield Problem(
            "real_time.commit_interval",
            duration_text(settings.commit_interval),
            "is not used with delivery at_least_once, which writes each result at once: remove the "
            "field, or use delivery exactly_once",
        )


def has_caught_up(unread: int, *, batch: timedelta, batches: timedelta) -> bool:
    """Whether intervals follow a micro-batch.

    `unread`: records of both topics that the batch leaves unread. `batch`: duration of the batch.
    `batches`: duration of all batches that have left at most CAUGHT_UP_RECORDS, including this one.
    """
    return unread <= CAUGHT_UP_RECORDS and (
        batch <= CAUGHT_UP_BATCH or batches >= CAUGHT_UP_BATCHES
    )


def is_behind(unread: int, *, received: int, duration: timedelta) -> bool:
    """Whether micro-batches follow an interval.

    `unread`: records of both topics that the interval leaves unread. `received`: records that the
    topics have received in the `duration` of the interval.
    """
    return unread > RECORDS_BEHIND_MAX and unread * duration > received * BEHIND_MAX
