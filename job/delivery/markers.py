"""Reads the commit topic, which contains the last delivered batch of each state partition.

Partition N contains only the markers of state partition N; one more partition contains those of the
dead letters. An open transaction hides all later records of its partition from readers: this way no
slot waits for the transaction of another one.
"""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Message, TopicPartition

from job.delivery.commit_protocol import NO_BATCH, Marker, UnavailableError
from job.delivery.delivered import Delivered, Fence
from job.delivery.producers import describe_failure, is_lasting
from job.kafka.clients import LATEST, AdminClient, connect, consumer, list_offsets, poll

READ_SECONDS = 30.0
_POLL_SECONDS = 1.0
# Records at the end of a partition that are read first: a batch has two records, an aborted one
# leaves two more. If they contain no marker of the key, the whole partition is read.
_TAIL_RECORDS = 64
_FENCE = b"/fence"
_FORMAT = 1


def marker_key(name: str, slot: str) -> bytes:
    """All queries of a name share the key: the newest marker is that of the owner of the slot."""
    return f"{name}/{slot}".encode()


def fence_key(name: str, slot: str) -> bytes:
    return marker_key(name, slot) + _FENCE


def encoded(marker: Marker) -> bytes:
    return json.dumps(
        {
            "format": _FORMAT,
            "query_id": marker.query_id,
            "batch_id": marker.batch_id,
            "fingerprint": marker.fingerprint,
        }
    ).encode()


def encoded_fence(fence: Fence) -> bytes:
    content = {"format": _FORMAT, "query_id": fence.query_id, "number": fence.number}
    return json.dumps(content).encode()


@dataclass(frozen=True)
class Record:
    """The newest record of a key."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    """Empty: a tombstone."""


def decoded(record: Record) -> Marker:
    """Raises UnavailableError if the record is no marker."""
    fields, size = _fields(record), len(record.value)
    if type(fields.get("batch_id")) is not int:
        content = f"{size} bytes without a batch" if record.value else "a tombstone"
        raise _of_another_program(record, content)
    match fields.get("fingerprint"), fields.get("query_id"):
        case str(fingerprint), str(query_id):
            return Marker(fields["batch_id"], fingerprint, query_id)
        case str(), _:
            raise _of_another_program(record, f"{size} bytes without a query id")
    raise _of_another_program(record, f"{size} bytes without a fingerprint")


def _decoded_fence(record: Record) -> Fence:
    match _fields(record):
        case {"query_id": str(query_id), "number": int(number)}:
            return Fence(query_id, number)
    raise _of_another_program(record, f"{len(record.value)} bytes without the number of a fence")


def _fields(record: Record) -> Mapping[str, Any]:
    """Empty if the record is no JSON object."""
    fields = None
    with suppress(ValueError, RecursionError):
        fields = json.loads(record.value)
    if not isinstance(fields, dict):
        return {}
    _check_format(record, fields.get("format"))
    return fields


def _check_format(record: Record, number: Any) -> None:
    if type(number) is int and number != _FORMAT:
        raise _unreadable(
            record,
            f"has the format {number}, and this version of Streamjoin reads the format {_FORMAT}. "
            "Start the query with the version that has written it",
        )


def _of_another_program(record: Record, content: str) -> UnavailableError:
    return _unreadable(
        record,
        f"is {content}. Another program has written it, so the last delivered batch is unknown. "
        "Write the previous record of the key again, if the topic still contains it; or start a "
        "new query with another `name` and `checkpoint`",
    )


def _unreadable(record: Record, message: str) -> UnavailableError:
    return UnavailableError(
        f"the newest record with the key {record.key.decode(errors='replace')}, at offset "
        f"{record.offset} of the commit topic {record.topic}, partition {record.partition}, "
        f"{message}",
        retryable=False,
    )


@dataclass
class _ReadPartition:
    """Content of a partition of the commit topic."""

    next_offset: int
    records: dict[bytes, Record]
    """The newest record of each key."""


class MarkerReader:
    """Reads markers. Each read of a partition continues where the previous read ended. For use
    on one thread."""

    def __init__(
        self, admin: AdminClient, client: Mapping[str, str], topic: str, group: str
    ) -> None:
        """`admin`: may be shared with other readers. `client`: settings of librdkafka."""
        self._topic = topic
        self._known: dict[int, _ReadPartition] = {}
        self._admin = admin
        self._consumer = consumer({**client, "fetch.wait.max.ms": 10}, group)
        self._is_connected = False

    def newest(self, partition: int, key: bytes, *, to_the_end: bool) -> Marker | None:
        """The newest committed marker of `key`. None: there is none.

        `to_the_end`: read everything that was in the partition at the time of the call. Raises
        UnavailableError if an open transaction hides some of it for too long, or if the newest
        record of `key` is no marker.
        """
        deadline = time.monotonic() + READ_SECONDS
        try:
            end = self._end(partition)
            known = self._known.pop(partition, None)
            if (
                known is None or known.next_offset > end
            ):  # first read, or the topic was created again
                known = _ReadPartition(max(0, end - _TAIL_RECORDS), {})
                self._read(partition, known, end, deadline, to_the_end=to_the_end)
                if key not in known.records and end > _TAIL_RECORDS:
                    known = _ReadPartition(0, {})
            self._read(partition, known, end, deadline, to_the_end=to_the_end)
        except KafkaException as error:
            raise UnavailableError(
                f"the commit topic {self._topic} could not be read: {describe_failure(error)}",
                retryable=not is_lasting(error.args[0].code()),
            ) from error
        self._known[partition] = known
        record = known.records.get(key)
        return None if record is None else decoded(record)

    def delivered(
        self, partition: int, key: bytes, query_id: str, *, to_the_end: bool
    ) -> Delivered:
        """What the query has delivered in the slot. `key`: the marker key of the slot.
        `to_the_end`: as for `newest`."""
        self._known.pop(partition, None)  # maybe only the tail was read
        self.newest(partition, b"", to_the_end=to_the_end)
        records = self._known[partition].records
        batch = interval = marked = fenced = NO_BATCH
        fence = 0
        if key in records and (marker := decoded(records[key])).query_id == query_id:
            batch = marker.batch_id
        for found, record in records.items():  # in the order of the partition
            if found == key:
                marked = batch
            elif found == key + _FENCE:
                newest = _decoded_fence(record)
                if newest.query_id == query_id:
                    fence, fenced = newest.number, max(marked, interval)
            elif found.startswith(key + b"/"):
                part = _fields(record)
                if part.get("query_id") == query_id:
                    interval = max(interval, part["batch_id"])
        return Delivered(max(batch, interval), interval, fence, fenced)

    @property
    def partitions(self) -> int:
        """Number of partitions of the commit topic. Raises KafkaException."""
        return len(
            self._admin.list_topics(self._topic, READ_SECONDS).topics[self._topic].partitions
        )

    def _end(self, partition: int) -> int:
        """Offset after the newest record, committed or not."""
        offsets = list_offsets(self._admin, self._topic, [partition], LATEST, seconds=READ_SECONDS)
        return offsets[partition]

    def _read(
        self, partition: int, known: _ReadPartition, end: int, deadline: float, *, to_the_end: bool
    ) -> None:
        if known.next_offset >= end:
            return
        if not self._is_connected:
            connect(self._consumer, READ_SECONDS, self._topic)
            self._is_connected = True
        self._consumer.assign([TopicPartition(self._topic, partition, known.next_offset)])
        try:
            while known.next_offset < end:
                message = poll(self._consumer, _POLL_SECONDS)
                if message is not None and self._take(message, known) and not to_the_end:
                    return
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"offsets {known.next_offset} to {end} of the commit topic {self._topic}, "
                        f"partition {partition}, could not be read within {READ_SECONDS:.0f} s: "
                        "a transaction is open there, or the broker is slow"
                    )
        finally:
            self._consumer.unassign()

    def _take(self, message: Message, known: _ReadPartition) -> bool:
        """Record a marker. Returns whether this is the last record that is committed at present."""
        offset = message.offset()
        assert offset is not None
        if message.error() is not None:  # the end of the partition
            known.next_offset = max(known.next_offset, offset)
            return True
        key = message.key() or b""
        known.records.pop(key, None)  # sorts the keys by their newest records
        partition, value = message.partition(), message.value() or b""
        assert partition is not None
        known.records[key] = Record(self._topic, partition, offset, key, value)
        known.next_offset = offset + 1
        return False
