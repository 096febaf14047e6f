"""The writer of results and dead letters, as far as the driver decides what it writes."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError
from pyspark.errors import PySparkException

from job.checkpoint.checkpoint import Checkpoint
from job.dataflow.written import TopicLimits
from job.delivery import record_writer as module
from job.delivery.record_writer import RecordWriter, record_writer
from job.errors import CheckpointError, DeliveryError, FencedError, StreamjoinError
from job.event_time.interval import Interval
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.security import KafkaAccess
from job.plan.plan import JoinPlan
from job.writer.transactions import Delivered, Identity
from tests.unit.change.test_files import Disk, Folder
from tests.unit.replay.test_replay import REPLAY
from tests.unit.specs import plan

PLAN = plan(engine="real_time", output__delivery="exactly_once")
MICRO_BATCH = plan(
    output__delivery="exactly_once", on_bad_record=None, dead_letter={"topic": "dead"}
)
KAFKA = KafkaAdmin(KafkaAccess("localhost:9092"))
CUT = Interval(batch_id=7, watermark_ms=5_000)


def checkpoint_with(interval: Interval | None) -> Checkpoint:
    made = object.__new__(Checkpoint)
    folder: Any = Folder(Disk(), "file:/c")
    made.folder = folder
    made.ensure_query_id()
    if interval is not None:
        made.record_interval(interval)
    return made


class FakeTransactions:
    """Without Java. Records what it is to write."""

    def __init__(self, identity: Identity, only_slot: tuple[str, int] | None) -> None:
        self.identity, self.only_slot = identity, only_slot
        self.batches: list[tuple[object, int, str]] = []
        self.delivered = Delivered(0, 0, 0)

    def write_batch(self, records: object, batch_id: int, fingerprint: str) -> None:
        self.batches.append((records, batch_id, fingerprint))

    def take_delivered(self) -> Delivered:
        taken, self.delivered = self.delivered, Delivered(0, 0, 0)
        return taken


class Start:
    """A start of the query, and what it passes to Kafka."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, checkpoint: Checkpoint, plan: JoinPlan = PLAN
    ) -> None:
        self._checkpoint, self._plan = checkpoint, plan
        self.fences: list[int] = []
        self.while_fencing: Callable[[], object] = lambda: None
        self.transactions: list[FakeTransactions] = []
        """Those of the records, and those of the dead letters."""
        self.claims: list[object] = []
        monkeypatch.setattr(module, "claim_name", lambda *args, **_: self.claims.append(args[-1]))
        monkeypatch.setattr(module, "fence_slots", self._fence_slots)
        monkeypatch.setattr(module, "Transactions", self._transactions)

    def _fence_slots(self, _: JoinPlan, __: object, number: int) -> None:
        self.fences.append(number)
        self.while_fencing()

    def _transactions(
        self, *arguments: Any, only_slot: tuple[str, int] | None = None, **_: object
    ) -> FakeTransactions:
        self.transactions.append(FakeTransactions(arguments[1], only_slot))
        return self.transactions[-1]

    def writer(self, *, follows_catch_up: bool = False) -> RecordWriter:
        self.transactions.clear()
        return record_writer(
            *(None, self._plan, KAFKA, self._checkpoint, TopicLimits(1_000, 0), REPLAY),  # type: ignore[arg-type]
            fence=self._checkpoint.fence,
            follows_catch_up=follows_catch_up,
            new_query=False,
        )

    def run(self, *, follows_catch_up: bool = False) -> int:
        """The fence number of the run."""
        self.writer(follows_catch_up=follows_catch_up)
        return self.transactions[0].identity.fence


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
    checkpoint.record_interval(
        Interval(batch_id=CUT.batch_id, watermark_ms=CUT.watermark_ms, repeat_until=ends)
    )  # type: ignore[arg-type]
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

    def __init__(self, kind: str, *, retryable: bool, code: int = 0, slot: str = "1") -> None:
        super().__init__("streamjoin.DeliveryFailure")
        self._kind, self._retryable, self._code, self._slot = kind, retryable, code, slot

    def errorCode(self) -> int:  # noqa: N802
        return self._code

    def kind(self) -> str:
        return self._kind

    def batchId(self) -> int:  # noqa: N802
        return 7

    def slot(self) -> str:
        return self._slot

    def isRetryable(self) -> bool:  # noqa: N802
        return self._retryable

    def getMessage(self) -> str:  # noqa: N802
        return "the reason"


def failure_of_spark(cause: Throwable) -> PySparkException:
    error = PySparkException("planted")
    error._origin = Throwable("org.apache.spark.SparkException", cause)  # type: ignore[attr-defined]
    return error


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    """Of a query of Spark's join with dead letters."""
    return Start(monkeypatch, checkpoint_with(None), MICRO_BATCH)


def error_of(start: Start, cause: Throwable) -> StreamjoinError | None:
    return start.writer().error_of(failure_of_spark(cause))


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
        (
            Failure("aborted", retryable=True, slot="dead-letters"),
            DeliveryError,
            "batch 7 could not be delivered to dead as streamjoin-tested-dead-letters (aborted): ",
        ),
    ],
)
def test_failure_of_a_slot_has_a_code_a_place_and_whether_to_retry(
    start: Start, failure: Failure, kind: type[StreamjoinError], text: str
) -> None:
    error = error_of(start, failure)
    assert kind is type(error)
    assert text in str(error)
    assert failure.isRetryable() is error.retryable


def test_error_that_lasts_is_not_retried_and_has_a_remedy(start: Start) -> None:
    error = error_of(start, Failure("aborted", retryable=True, code=KafkaError.POLICY_VIOLATION))

    assert isinstance(error, DeliveryError)
    assert not error.retryable
    assert "(aborted): the reason. A policy of the brokers refuses the records: " in str(error)
    assert "Then `restart` runs the batch again, and nothing is lost" in str(error)


def test_failed_transaction_is_counted_once(start: Start) -> None:
    writer = start.writer()
    error = failure_of_spark(Failure("fenced", retryable=False))
    for _ in range(2):
        writer.error_of(error)

    start.transactions[0].delivered = Delivered(results=3, committed=1, skipped=0)
    assert (3, {"fenced": 1, "committed": 1, "skipped": 0}) == writer.delivered(9)
    assert (0, {"committed": 0, "skipped": 0}) == writer.delivered(9)


def test_other_errors_are_not_failures_of_the_delivery(start: Start) -> None:
    assert error_of(start, Throwable("java.net.ConnectException")) is None


class Records:
    """A frame."""

    def __init__(self) -> None:
        self.partitions: int | None = None
        self.saved: list[tuple[str, Mapping[str, str]]] = []
        self.write = self

    def coalesce(self, partitions: int) -> "Records":
        self.partitions = partitions
        return self

    def format(self, name: str) -> "Records":
        self._format = name
        return self

    def options(self, **options: str) -> "Records":
        self._options = options
        return self

    def save(self) -> None:
        self.saved.append((self._format, self._options))


@pytest.mark.parametrize(("skipped", "is_written"), [(0, True), (1, False)])
def test_dead_letters_of_a_micro_batch_have_one_slot(
    start: Start, monkeypatch: pytest.MonkeyPatch, skipped: int, *, is_written: bool
) -> None:
    monkeypatch.setattr(module, "input_fingerprint", lambda _, batch_id: f"f{batch_id}")
    writer = start.writer()
    rows, letters = start.transactions
    results: Any = Records()
    writer.write_batch(results, 7)
    assert ([(results, 7, "f7")], None) == (rows.batches, rows.only_slot)

    dead: Any = Records()
    letters.delivered = Delivered(results=0, committed=1 - skipped, skipped=skipped)
    assert is_written is writer.write_dead_letters(dead, 7)
    assert ([(dead, 7, "f7")], ("dead-letters", 2)) == (letters.batches, letters.only_slot)
    assert (1, None) == (dead.partitions, results.partitions)
    # Not a transaction of a state partition.
    assert (0, {"committed": 0, "skipped": 0}) == writer.delivered(0)


def test_records_are_written_at_least_once_by_the_sink_of_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint = checkpoint_with(None)
    checkpoint.begin_exactly_once()
    writer = Start(monkeypatch, checkpoint, plan()).writer()
    records: Any = Records()
    writer.write_batch(records, 7)
    assert writer.write_dead_letters(records, 7)  # also those that an earlier attempt has written
    for name, options in records.saved:
        assert "kafka" == name
        assert "localhost:9092" == options["kafka.bootstrap.servers"]
    assert 2 == len(records.saved)
    assert (9, {}) == writer.delivered(9)
    assert writer.error_of(failure_of_spark(Failure("fenced", retryable=False))) is None
    # The next exactly-once batch follows batches without markers.
    assert checkpoint.folder.text("exactly_once.json") is None
