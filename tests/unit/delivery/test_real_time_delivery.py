"""Delivery of the real-time engine, as far as the driver decides it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from pyspark.errors import PySparkException

from job.checkpoint.checkpoint import Checkpoint
from job.dataflow.real_time import TopicLimits
from job.delivery import real_time_delivery as module
from job.delivery.exactly_once import delivery_target
from job.delivery.real_time_delivery import _ExactlyOnce, real_time_delivery
from job.errors import CheckpointError, DeliveryError, FencedError, StreamjoinError
from job.event_time.interval import Interval
from job.kafka.security import KafkaAccess
from job.plan.plan import JoinPlan
from job.real_time.transactions import Identity
from tests.unit.change.test_replay import REPLAY
from tests.unit.checkpoint.test_changes import Disk, Folder
from tests.unit.specs import plan

PLAN = plan(engine="real_time", output__delivery="exactly_once")
ACCESS = KafkaAccess("localhost:9092")
CUT = Interval(7, 5_000)


def checkpoint_with(interval: Interval | None) -> Checkpoint:
    made = object.__new__(Checkpoint)
    folder: Any = Folder(Disk(), "file:/c")
    made.folder = folder
    made.ensure_query_id()
    if interval is not None:
        made.record_interval(interval)
    return made


class Start:
    """A start of the query, and what it passes to Kafka."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self.fences: list[int] = []
        self.while_fencing: Callable[[], object] = lambda: None
        self.identities: list[Identity] = []
        self.claims: list[object] = []
        monkeypatch.setattr(module, "claim_name", lambda *args, **_: self.claims.append(args[-1]))
        monkeypatch.setattr(module, "fence_slots", self._fence_slots)
        monkeypatch.setattr(module, "Transactions", self._transactions)

    def _fence_slots(self, _: JoinPlan, __: object, number: int) -> None:
        self.fences.append(number)
        self.while_fencing()

    def _transactions(self, _: object, identity: Identity, *__: object, **___: object) -> None:
        self.identities.append(identity)

    def run(self, *, follows_catch_up: bool = False) -> int:
        """The fence number of the run."""
        real_time_delivery(
            *(None, PLAN, ACCESS, self._checkpoint, TopicLimits(1_000, 0), REPLAY),  # type: ignore[arg-type]
            fence=self._checkpoint.fence,
            follows_catch_up=follows_catch_up,
            new_query=False,
        )
        return self.identities[-1].fence


def test_only_a_run_that_records_how_far_an_interval_is_repeated_fences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint = checkpoint_with(None)
    start = Start(monkeypatch, checkpoint)
    assert (0, []) == (start.run(), start.fences)
    assert [REPLAY] == start.claims

    checkpoint.record_interval(CUT)
    assert (1, [1]) == (start.run(), start.fences)

    # It was killed before it recorded the ends of the topics.
    assert (2, [1, 2]) == (start.run(), start.fences)

    ends = {"left": {0: 9}, "right": {0: 9}}
    checkpoint.record_interval(Interval(CUT.batch_id, CUT.watermark_ms, ends))  # type: ignore[arg-type]
    assert (2, [1, 2]) == (start.run(), start.fences)
    assert (2, [1, 2]) == (start.run(follows_catch_up=True), start.fences)


def test_run_that_was_replaced_while_it_fenced_keeps_its_smaller_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint = checkpoint_with(CUT)
    start = Start(monkeypatch, checkpoint)
    start.while_fencing = checkpoint.increment_fence
    assert 1 == start.run()


class Throwable:
    """As much of Java's as is read of it."""

    def __init__(self, name: str, cause: "Throwable | None" = None) -> None:
        self._name, self._cause = name, cause

    def getClass(self) -> "Throwable":  # noqa: N802 - Java's name
        return self

    def getName(self) -> str:  # noqa: N802
        return self._name

    def getSuperclass(self) -> None:  # noqa: N802
        return None

    def getCause(self) -> "Throwable | None":  # noqa: N802
        return self._cause


class Failure(Throwable):
    """DeliveryFailure.java"""

    def __init__(self, kind: str, *, retryable: bool, code: int = 0) -> None:
        super().__init__("streamjoin.DeliveryFailure")
        self._kind, self._retryable, self._code = kind, retryable, code

    def errorCode(self) -> int:  # noqa: N802
        return self._code

    def kind(self) -> str:
        return self._kind

    def batchId(self) -> int:  # noqa: N802
        return 7

    def partition(self) -> int:
        return 1

    def isRetryable(self) -> bool:  # noqa: N802
        return self._retryable

    def getMessage(self) -> str:  # noqa: N802
        return "the reason"


def explained(cause: Throwable) -> StreamjoinError | None:
    target = delivery_target(PLAN, ACCESS, checkpoint_with(None), record_bytes_max=0)
    error = PySparkException("planted")
    error._origin = Throwable("org.apache.spark.SparkException", cause)  # type: ignore[attr-defined]
    delivery = _ExactlyOnce(None, target, None)  # type: ignore[arg-type]
    return delivery.explained(error)


@pytest.mark.parametrize(
    ("failure", "kind", "text"),
    [
        (
            Failure("disagreement", retryable=False),
            CheckpointError,
            "checkpoint and commit topic tested.commits disagree: the reason",
        ),
        (
            Failure("taken_over", retryable=False),
            FencedError,
            "has taken over the name tested in the commit topic tested.commits: the reason",
        ),
        (Failure("fenced", retryable=False), FencedError, "it now writes as streamjoin-tested-1"),
        (
            Failure("unavailable", retryable=True),
            DeliveryError,
            "batch 7 could not be delivered to attributed as streamjoin-tested-1 (unavailable): ",
        ),
        (Failure("aborted", retryable=False), DeliveryError, "(aborted): the reason"),
    ],
)
def test_failure_of_a_partition_has_a_code_a_place_and_whether_to_retry(
    failure: Failure, kind: type[StreamjoinError], text: str
) -> None:
    error = explained(failure)
    assert kind is type(error)
    assert text in str(error)
    assert failure.isRetryable() is error.retryable


def test_error_that_lasts_is_not_retried_and_has_a_remedy() -> None:
    error = explained(Failure("aborted", retryable=True, code=KafkaError.POLICY_VIOLATION))

    assert isinstance(error, DeliveryError)
    assert not error.retryable
    assert "(aborted): the reason. A policy of the brokers refuses the records: " in str(error)
    assert "Then `restart` runs the batch again, and nothing is lost" in str(error)


def test_failed_transaction_is_counted_once() -> None:
    target = delivery_target(PLAN, ACCESS, checkpoint_with(None), record_bytes_max=0)
    nothing = SimpleNamespace(results=0, committed=0, skipped=0)
    transactions: Any = SimpleNamespace(take_delivered=lambda: nothing)
    delivery = _ExactlyOnce(None, target, transactions)  # type: ignore[arg-type]
    error = PySparkException("planted")
    failure = Failure("fenced", retryable=False)
    error._origin = Throwable("org.apache.spark.SparkException", failure)  # type: ignore[attr-defined]
    for _ in range(2):
        delivery.explained(error)

    counts = [dict(delivery.delivered(0)[1]) for _ in range(2)]
    assert [1, 0] == [count.get("fenced", 0) for count in counts]


def test_other_errors_are_not_failures_of_the_delivery() -> None:
    assert explained(Throwable("java.net.ConnectException")) is None
