"""Markers in a real commit topic: a read returns the newest committed one, none, or an error, never
an older one."""

import json
import re
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
from confluent_kafka import KafkaException, Producer

from deploy.local.kafka import EmbeddedKafka
from job.delivery import markers
from job.delivery.commit_protocol import NO_BATCH, Marker, UnavailableError
from job.delivery.delivered import Delivered
from job.delivery.exactly_once import fence_slots
from job.delivery.markers import MarkerReader, encoded, fence_key, marker_key
from job.delivery.slots import Target, slot_of
from job.kafka.clients import admin
from tests.integration.topics import consume_all
from tests.polling import wait_until
from tests.unit.specs import plan

SECONDS = 30.0
KEY = marker_key("query", "0")


@pytest.fixture
def topic(kafka: EmbeddedKafka, request: pytest.FixtureRequest) -> str:
    name = f"markers{crc32(request.node.name.encode())}"
    kafka.create_topics([name], partitions=1, config={"cleanup.policy": "compact"})
    return name


@pytest.fixture
def reader(kafka: EmbeddedKafka, topic: str) -> MarkerReader:
    return new_reader(kafka, topic)


def new_reader(kafka: EmbeddedKafka, topic: str) -> MarkerReader:
    client = {"bootstrap.servers": kafka.bootstrap_servers}
    return MarkerReader(admin(client), client, topic, "markers")


class Writer:
    """A producer with one transactional id."""

    def __init__(self, kafka: EmbeddedKafka, topic: str, name: str) -> None:
        self._topic = topic
        self.producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "transactional.id": f"{topic}-{name}",
                "log_level": 0,
            }
        )
        self.producer.init_transactions(SECONDS)

    def open(self, batch_id: int, key: bytes = KEY) -> None:
        self.producer.begin_transaction()
        self.producer.produce(self._topic, encoded(Marker(batch_id, "f", "q")), key, 0)
        self.producer.flush(SECONDS)

    def commit(self, batch_id: int, key: bytes = KEY) -> None:
        self.open(batch_id, key)
        self.producer.commit_transaction(SECONDS)


@pytest.fixture
def writer(kafka: EmbeddedKafka, topic: str) -> Iterator[Writer]:
    writer = Writer(kafka, topic, "writer")
    yield writer
    writer.producer.purge()


def test_newest_committed_marker_is_read_and_none_if_there_is_none(
    writer: Writer, reader: MarkerReader
) -> None:
    assert reader.newest(0, KEY, to_the_end=True) is None
    for batch_id in range(3):
        writer.commit(batch_id)
        # The broker answers a commit before it writes the control record: fencing waits for that.
        writer.producer.begin_transaction()
        writer.producer.commit_transaction(SECONDS)
        assert Marker(batch_id, "f", "q") == reader.newest(0, KEY, to_the_end=True)

    writer.open(3)
    writer.producer.abort_transaction(SECONDS)
    assert Marker(2, "f", "q") == reader.newest(0, KEY, to_the_end=True)


class Recording:
    """A consumer whose calls are recorded."""

    def __init__(self, consumer: Any) -> None:
        self.calls: list[str] = []
        self._consumer = consumer

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._consumer, name)


def test_reader_connects_before_its_first_read(writer: Writer, reader: MarkerReader) -> None:
    """Otherwise librdkafka mostly takes 1 s to find the leader of the partition."""
    writer.commit(0)
    recording: Any = Recording(reader._consumer)
    reader._consumer = recording

    for _ in range(2):
        reader.delivered(0, KEY, "q", to_the_end=True)

    waiting = [call for call in recording.calls if call != "poll"]
    assert ["list_topics", "list_topics", *(2 * ["assign", "unassign"])] == waiting


def test_marker_is_found_behind_many_markers_of_others(
    kafka: EmbeddedKafka, topic: str, writer: Writer
) -> None:
    writer.commit(7)
    for number in range(markers._TAIL_RECORDS):
        writer.commit(number, b"another")

    assert Marker(7, "f", "q") == new_reader(kafka, topic).newest(0, KEY, to_the_end=True)


def test_newest_batch_or_interval_of_which_a_query_has_delivered_anything_is_found(
    kafka: EmbeddedKafka, topic: str, writer: Writer
) -> None:
    def delivered(query_id: str = "q", *, to_the_end: bool = True) -> Delivered:
        reader = new_reader(kafka, topic)
        return reader.delivered(0, KEY, query_id, to_the_end=to_the_end)

    assert Delivered(NO_BATCH, NO_BATCH) == delivered()
    writer.commit(7)
    for number in range(markers._TAIL_RECORDS):
        writer.commit(number, b"another")
    assert Delivered(7, NO_BATCH) == delivered()
    assert Delivered(NO_BATCH, NO_BATCH) == delivered("other")

    part = {"format": 1, "query_id": "q", "batch_id": 8, "ids": ["a"]}
    fence = {"format": 1, "query_id": "q", "number": 3}
    for key, value in ((KEY + b"/0", part), (fence_key("query", "0"), fence)):
        writer.producer.begin_transaction()
        writer.producer.produce(topic, json.dumps(value), key, 0)
        writer.producer.commit_transaction(SECONDS)
    assert Delivered(8, 8, 3, 8) == delivered()
    assert Delivered(NO_BATCH, NO_BATCH) == delivered("other")
    writer.commit(9)
    assert Delivered(9, 8, 3, 8) == delivered()

    another = Writer(kafka, topic, "of another join")
    another.open(1, b"another")
    for key, value in (
        (KEY + b"/1", {**part, "batch_id": 10}),
        (fence_key("query", "0"), {**fence, "number": 4}),
        (KEY + b"/2", {**part, "batch_id": 11}),
    ):
        writer.producer.begin_transaction()
        writer.producer.produce(topic, json.dumps(value), key, 0)
        writer.producer.commit_transaction(SECONDS)
    assert Delivered(9, 8, 3, 8) == delivered(to_the_end=False)
    another.producer.abort_transaction(SECONDS)
    assert Delivered(11, 11, 4, 10) == delivered()


def test_marker_hidden_by_an_open_transaction_is_an_error(
    kafka: EmbeddedKafka,
    topic: str,
    writer: Writer,
    reader: MarkerReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = Writer(kafka, topic, "other")
    writer.commit(0)
    other.open(5, b"another")
    writer.commit(1)

    assert Marker(0, "f", "q") == reader.newest(0, KEY, to_the_end=False)
    monkeypatch.setattr(markers, "READ_SECONDS", 1.0)
    with pytest.raises(UnavailableError, match="a transaction is open there"):
        reader.newest(0, KEY, to_the_end=True)

    monkeypatch.undo()
    other.producer.abort_transaction(SECONDS)
    assert Marker(1, "f", "q") == reader.newest(0, KEY, to_the_end=True)


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, "a tombstone"),
        (b"[]", "2 bytes without a batch"),
        (b'{"format": 1}', "13 bytes without a batch"),
        (b'{"format": 1, "batch_id": 5, "query_id": "q"}', "45 bytes without a fingerprint"),
        (b'{"format": 1, "batch_id": 5, "fingerprint": "f"}', "48 bytes without a query id"),
        (
            b'{"format": 1, "batch_id": "5", "fingerprint": "f", "query_id": "q"}',
            "67 bytes without a batch",
        ),
    ],
)
def test_marker_that_another_program_has_replaced_is_an_error_and_no_first_start(
    value: bytes | None,
    content: str,
    topic: str,
    writer: Writer,
    reader: MarkerReader,
) -> None:
    writer.commit(4)
    writer.producer.begin_transaction()
    writer.producer.produce(topic, value, KEY, 0)
    writer.producer.commit_transaction(SECONDS)

    message = re.escape(
        f"the newest record with the key query/0, at offset 2 of the commit topic {topic}, "
        f"partition 0, is {content}. Another program"
    )
    for read in (
        lambda: reader.newest(0, KEY, to_the_end=True),
        lambda: reader.delivered(0, KEY, "q", to_the_end=True),
    ):
        with pytest.raises(UnavailableError, match=message) as raised:
            read()
        assert not raised.value.retryable


@pytest.mark.parametrize("value", [None, b"[]", b'{"format": 1, "number": 2}'])
def test_fence_that_another_program_has_replaced_is_an_error(
    value: bytes | None, topic: str, writer: Writer, reader: MarkerReader
) -> None:
    writer.commit(7)
    writer.producer.begin_transaction()
    writer.producer.produce(topic, value, fence_key("query", "0"), 0)
    writer.producer.commit_transaction(SECONDS)

    with pytest.raises(UnavailableError, match=r"query/0/fence, at offset 2 .* number of a fence"):
        reader.delivered(0, KEY, "q", to_the_end=True)


def test_fence_is_committed_in_each_slot_and_ends_the_transactions_before_it(
    kafka: EmbeddedKafka,
) -> None:
    bootstrap, topic = kafka.bootstrap_servers, "fenced.commits"
    kafka.create_topics([topic], partitions=3, config={"cleanup.policy": "compact"})
    client = {"bootstrap.servers": bootstrap}
    target = Target(admin(client), tuple(client.items()), "fenced", "q", topic, 300)
    before = Producer(target.producer_settings(slot_of(1)))
    before.init_transactions(SECONDS)
    before.begin_transaction()
    before.produce(topic, b"{}", b"of an open transaction", 1)
    before.flush(SECONDS)

    fence_slots(plan(name="fenced"), target, 3)

    with pytest.raises(KafkaException):
        before.commit_transaction(SECONDS)
    (records,) = wait_until(
        lambda: [found for found in [consume_all(bootstrap, topic)] if len(found) >= 2],
        SECONDS,
        "both fences are visible",
    )
    fence = {"format": 1, "query_id": "q", "number": 3}
    keys = [fence_key("fenced", str(slot)).decode() for slot in range(2)]
    found = sorted((record.partition, record.key, record.value) for record in records)
    assert [(0, keys[0], fence), (1, keys[1], fence)] == found
