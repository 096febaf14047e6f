"""Topics of a test: creates them, sends records, reads results."""

import json
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own re-exports
    AdminClient,
    NewTopic,
    OffsetSpec,
)

from job.errors import BrokerError, TopicError
from job.instants import to_epoch_ms, utc_text
from streamjoin.testing.waiting import wait_until

ANSWER_SECONDS = 30.0
FLUSH_SECONDS = 30.0
MESSAGES_AT_ONCE = 1_000
ID_HEADER = "streamjoin-id"
# Required by the client; nothing is ever committed to it.
_GROUP = "streamjoin-testing"

Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True)
class Record:
    """A record with value, key, headers and Kafka timestamp."""

    value: Mapping[str, Any] | str | bytes | None
    """A mapping is sent as JSON, text and bytes are sent unchanged, None is a tombstone."""
    key: str | None = None
    headers: Mapping[str, str] | None = None
    timestamp: datetime | None = None
    """Kafka timestamp. None: the event time, or the current time if there is no event time."""

    @property
    def payload(self) -> bytes | None:
        if self.value is None or isinstance(self.value, bytes):
            return self.value
        text = self.value if isinstance(self.value, str) else json.dumps(self.value, default=_json)
        return text.encode()


@dataclass(frozen=True)
class Row:
    """One result."""

    value: Mapping[str, Any]
    result_id: str

    @property
    def places(self) -> set[Place]:
        """Positions of its records, parsed from `impressions/0/17|clicks/2/5`."""
        parts = (part.rsplit("/", 2) for part in self.result_id.split("|") if part)
        return {(topic, int(partition), int(offset)) for topic, partition, offset in parts}


class Topics:
    """Creates and deletes topics, and writes to them."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "log_level": 0,
                # No limit: the test has all records in memory.
                "queue.buffering.max.messages": 0,
                "queue.buffering.max.kbytes": 2_147_483_647,
            }
        )

    def answers(self) -> bool:
        try:
            return bool(self._admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def names(self) -> set[str]:
        return set(self._admin.list_topics(timeout=ANSWER_SECONDS).topics)

    def create(self, names: Collection[str]) -> None:
        """Create topics with one partition, so that rows are read in the order they were sent."""
        new = [NewTopic(name, num_partitions=1, replication_factor=1) for name in names]
        if not new:
            return
        _await_all("created", self._admin.create_topics(new))
        # The controller has created them; the broker applies that a little later.
        wait_until(
            lambda: all(map(self._has_leader, names)),
            ANSWER_SECONDS,
            lambda: f"topics {', '.join(sorted(names))} have no leader",
        )

    def delete(self, names: Collection[str]) -> None:
        existing = self.names().intersection(names)
        if existing:
            _await_all("deleted", self._admin.delete_topics(sorted(existing)))
            wait_until(
                lambda: self.names().isdisjoint(existing),
                ANSWER_SECONDS,
                lambda: f"topics {', '.join(sorted(existing))} still exist",
            )

    def end(self, topic: str) -> int:
        """Offset of the next committed record."""
        return _end(self._admin, topic)

    def _has_leader(self, topic: str) -> bool:
        # A client caches for 30 s that a topic does not exist, so each try uses a new client.
        client = AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
        try:
            return _end(client, topic) >= 0
        except KafkaException:
            return False

    def send(self, topic: str, records: Iterable[tuple[Record, datetime]]) -> list[Place]:
        """Send records with their Kafka timestamps. Returns their positions. Raises BrokerError if
        the broker does not store all of them."""
        places: list[Place] = []
        failed: list[KafkaError] = []

        def note(error: KafkaError | None, message: Message) -> None:
            if error:
                failed.append(error)
            else:
                places.append((topic, message.partition() or 0, message.offset() or 0))

        for record, moment in records:
            self._producer.produce(
                topic,
                record.payload,
                key=record.key,
                headers=dict(record.headers or {}),
                timestamp=max(0, to_epoch_ms(moment)),
                on_delivery=note,
            )
        unsent = self._producer.flush(FLUSH_SECONDS)
        if unsent or failed:
            reason = failed[0].str() if failed else f"{unsent} unsent after {FLUSH_SECONDS:g} s"
            raise BrokerError(f"cannot write to topic {topic} at {self._servers}: {reason}")
        return places


class Output:
    """Reads the committed results of a topic, in the order of their offsets."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": _GROUP,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                # The broker reports the end of the partition after this wait.
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._next = 0

    def new_rows(self) -> list[Row]:
        """Results since the last call, up to the current end of the topic."""
        deadline = time.monotonic() + ANSWER_SECONDS
        rows: list[Row] = []
        # A new assignment makes the client report the end again, even without new records.
        self._consumer.assign([TopicPartition(self._topic, 0, self._next)])
        while time.monotonic() < deadline:
            for message in self._consumer.consume(MESSAGES_AT_ONCE, timeout=0.1):
                error = message.error()
                if error is None:
                    rows.append(_row(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._next = message.offset() or 0
                    return rows
                elif not error.retriable():
                    raise BrokerError(f"topic {self._topic} cannot be read: {error.str()}")
        raise BrokerError(
            f"topic {self._topic} was not read to its end within {ANSWER_SECONDS:g} s"
        )

    def close(self) -> None:
        self._consumer.close()


def _end(admin: AdminClient, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    futures = admin.list_offsets(
        {partition: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
        isolation_level=IsolationLevel.READ_COMMITTED,
    )
    return int(futures[partition].result(ANSWER_SECONDS).offset)


def _row(message: Message) -> Row:
    headers = dict(message.headers() or [])
    identity = headers.get(ID_HEADER) or b""
    text = identity.decode() if isinstance(identity, bytes) else identity
    return Row(value=json.loads(message.value() or b"null"), result_id=text)


def _await_all(what: str, futures: Mapping[str, Future[None]]) -> None:
    for name, future in futures.items():
        try:
            future.result(ANSWER_SECONDS)
        except KafkaException as error:
            raise TopicError(f"topic {name} cannot be {what}: {error.args[0].str()}") from error


def _json(value: object) -> str:
    if isinstance(value, datetime):
        return utc_text(value)
    raise TypeError(f"{value!r} cannot be written as JSON: use text or a number")
