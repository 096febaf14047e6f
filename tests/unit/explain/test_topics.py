"""How far topics are read, and records as the topic has them."""

from threading import Event
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Message

from job.explain import topics
from job.explain.topics import KeyTopics, KeyTopicsReader
from tests.unit.specs import plan

SINCE_MS = 1_000


class Client:
    """Gives one message a call."""

    def __init__(self, *messages: Message) -> None:
        self.messages = list(messages)

    def assign(self, _: Any) -> None:
        pass

    def consume(self, *_: Any) -> list[Message]:
        return [self.messages.pop(0)]


def message(partition: int, offset: int, at_ms: int, **fields: Any) -> Message:
    content: dict[str, Any] = {"topic": "t", "partition": partition, "offset": offset, **fields}
    return Message(timestamp=(1, at_ms), **content)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> KeyTopicsReader:
    monkeypatch.setattr(topics, "admin", lambda _: None)
    return KeyTopicsReader(plan(), {}, SINCE_MS, Event())


@pytest.mark.parametrize(
    ("starts", "from_ms"), [({0: 5, 1: 7}, 4_000), ({0: 5, 1: 8}, 3_000), ({0: 6, 1: 8}, SINCE_MS)]
)
def test_topic_is_read_from_the_latest_begin_of_its_cut_partitions(
    reader: KeyTopicsReader,
    monkeypatch: pytest.MonkeyPatch,
    starts: dict[int, int],
    from_ms: int,
) -> None:
    """Retention has removed the records before offset 5 of partition 0, and 7 of partition 1."""
    offsets = ({0: 5, 1: 7}, starts, {0: 10, 1: 10})
    monkeypatch.setattr(reader, "_offsets", lambda *_: offsets)
    client = Client(
        message(0, 5, 3_000), message(1, 7, 4_000), message(0, 9, 2_000), message(1, 9, 5_000)
    )
    found = KeyTopics()

    messages = list(
        reader._messages(cast("Consumer", client), {"t": SINCE_MS}, found, 60.0, 1_000_000)
    )

    assert 4 == len(messages)
    [read] = found.read
    assert (from_ms, 5_000, True) == (read.from_ms, read.until_ms, True)


def test_record_keeps_bytes_that_are_no_text() -> None:
    at = message(0, 3, 5, key=b"\0\0\0\0\xc8k", value=b"\0\0\0\0\xc8{}", headers=[("h", b"\xc8")])
    record = topics.input_record(plan().left, at)

    assert (b"\0\0\0\0\xc8{}", "\0\0\0\0\udcc8k") == (record.value, record.key)
    assert (("h", "\udcc8"),) == record.headers


@pytest.mark.parametrize(("timestamp", "written"), [("processing_time", 5), ("event_time", None)])
def test_event_time_of_a_result_is_not_the_time_at_which_it_was_written(
    monkeypatch: pytest.MonkeyPatch, timestamp: str, written: int | None
) -> None:
    monkeypatch.setattr(topics, "admin", lambda _: None)
    reader = KeyTopicsReader(
        plan(output__timestamp=timestamp, output__delivery="exactly_once"), {}, SINCE_MS, Event()
    )

    assert written == reader._written_ms(message(0, 3, 5))
