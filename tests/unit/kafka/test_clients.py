import ast
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from job.kafka.clients import LATEST, answer, list_offsets, no_broker, produce
from job.kafka.security import KafkaAccess


def test_request_without_an_answer_is_a_timeout_of_kafka() -> None:
    """Callers catch KafkaException; a TimeoutError ended a join while its broker stood still."""
    with pytest.raises(KafkaException, match="no answer within 0 s") as raised:
        answer(Future[int](), seconds=0.01)
    assert KafkaError._TIMED_OUT == raised.value.args[0].code()


def test_answer_of_a_broker_is_returned_or_raised() -> None:
    request = Future[int]()
    request.set_result(3)
    assert 3 == answer(request)

    refused = Future[int]()
    refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        answer(refused)


@pytest.mark.parametrize(
    ("code", "answers"),
    [
        (KafkaError._UNKNOWN_PARTITION, True),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, True),
        (KafkaError._TIMED_OUT, False),
        (KafkaError._ALL_BROKERS_DOWN, False),
    ],
)
def test_broker_that_has_answered_is_not_reported_as_missing(code: int, *, answers: bool) -> None:
    error = no_broker(KafkaAccess("127.0.0.1:9092"), KafkaException(KafkaError(code, "reason")))

    begin = "Kafka at {} refuses a request" if answers else "no broker answers at {}"
    assert str(error).startswith(f"{begin.format('127.0.0.1:9092')} (reason): check that")


class NewClient:
    """An AdminClient that records its requests."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def list_topics(self, *_: object) -> None:
        self.requests.append("list_topics")

    def list_offsets(self, places: dict[Any, Any], **_: object) -> dict[Any, Future[Any]]:
        return {
            place: self._answered("list_offsets", SimpleNamespace(offset=7)) for place in places
        }

    def _answered(self, request: str, content: Any) -> Future[Any]:
        self.requests.append(request)
        answered = Future[Any]()
        answered.set_result(content)
        return answered


def test_client_connects_before_its_first_request_for_offsets() -> None:
    """Otherwise librdkafka may wait for 3 s."""
    client: Any = NewClient()
    assert {0: 7} == list_offsets(client, "clicks", [0], LATEST)
    assert {1: 7} == list_offsets(client, "clicks", [1], LATEST)
    assert ["list_topics", "list_topics", "list_offsets", "list_offsets"] == client.requests


def full_queue(**limits: int) -> Producer:
    """A producer without a broker, whose queue never gets room."""
    return Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **limits})


@pytest.mark.parametrize("records", [2, 3])
def test_queue_takes_records_up_to_its_limits(records: int) -> None:
    by_number = full_queue(**{"queue.buffering.max.messages": records})
    by_size = full_queue(**{"queue.buffering.max.kbytes": records})
    for _ in range(records):
        produce(by_number, "out", b"", room_seconds=0.0)
        produce(by_size, "out", b"x" * 1024, room_seconds=0.0)

    for producer in (by_number, by_size):
        with pytest.raises(KafkaException, match=r"no room for 0 s.* records of topic out") as full:
            produce(producer, "out", b"x", room_seconds=0.0)
        assert KafkaError._QUEUE_FULL == full.value.args[0].code()


class FullTwice:
    """A producer whose queue is full for two calls."""

    def __init__(self) -> None:
        self.polls = 0
        self.queued: list[tuple[Any, ...]] = []

    def produce(self, *record: Any, **more: Any) -> None:
        if self.polls < 2:
            raise BufferError("Local: Queue full")
        self.queued.append((*record, more))

    def poll(self, _: float) -> None:
        self.polls += 1


def test_record_waits_for_room_and_is_queued_once() -> None:
    producer: Any = FullTwice()
    produce(producer, "out", b"v", b"k", 1, timestamp=7, headers=[("h", b"1")])

    record = ("out", b"v", b"k", 1, None, {"timestamp": 7, "headers": [("h", b"1")]})
    assert [record] == producer.queued


@pytest.mark.parametrize("package", ["job", "service", "deploy", "bench"])
def test_every_record_waits_for_room(package: str) -> None:
    """A queue can become full with any record: a batch of exactly 100,000 results filled it before
    the marker."""
    root = Path(__file__).parents[3]
    calls = [
        f"{path.relative_to(root)}:{call.lineno}"
        for path in (root / package).rglob("*.py")
        if ".produce" in (text := path.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "produce"
        and not (isinstance(call.func.value, ast.Name) and call.func.value.id == "clients")
    ]

    assert (1 if package == "job" else 0) == len(calls), calls
