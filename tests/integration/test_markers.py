"""Markers in a real commit topic: a read returns the newest committed one, none, or an error, never
an older one."""

from collections.abc import Iterator
from zlib import crc32

import pytest
from confluent_kafka import Producer

from deploy.local.kafka import EmbeddedKafka
from job.delivery import markers
from job.delivery.commit_protocol import Marker, UnavailableError
from job.delivery.markers import MarkerReader, encoded, marker_key

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
    return MarkerReader({"bootstrap.servers": kafka.bootstrap_servers}, topic, "markers")


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


def test_marker_is_found_behind_many_markers_of_others(
    kafka: EmbeddedKafka, topic: str, writer: Writer
) -> None:
    writer.commit(7)
    for number in range(markers._TAIL_RECORDS):
        writer.commit(number, b"another")

    assert Marker(7, "f", "q") == new_reader(kafka, topic).newest(0, KEY, to_the_end=True)


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
