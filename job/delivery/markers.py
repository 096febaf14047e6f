"""The commit topic: for each state partition which batch has been delivered last.

Its partition N holds the markers of state partition N alone, and one more partition those of the
dead letters. An open transaction hides from readers all that was written behind it; so none has to
wait for another one's.
"""

import json
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own re-exports
    AdminClient,
    OffsetSpec,
)

from job.delivery.commit_protocol import Marker, UnavailableError
from job.delivery.producers import is_lasting

READ_SECONDS = 30.0
_POLL_SECONDS = 1.0
# How far from its end a partition is read at first: the last batch is two records, an aborted one
# leaves two more. What is not found there is looked for in all of it.
_TAIL_RECORDS = 64


def marker_key(name: str, lane: str) -> bytes:
    """All queries of a name share the key: the newest marker names the query that owns the lane."""
    return f"{name}/{lane}".encode()


@dataclass(frozen=True)
class OldKey:
    """Key of versions that had one for each query."""

    query_id: str
    lane: str

    @property
    def encoded(self) -> bytes:
        return f"{self.query_id}/{self.lane}".encode()


def encoded(marker: Marker) -> bytes:
    return json.dumps(
        {
            "format": 1,
            "query_id": marker.query_id,
            "batch_id": marker.batch_id,
            "fingerprint": marker.fingerprint,
        }
    ).encode()


def decoded(key: bytes, value: bytes) -> Marker:
    fields = json.loads(value)
    query_id = fields["query_id"] if "format" in fields else _old_key(key).query_id
    return Marker(fields["batch_id"], fields["fingerprint"], query_id)


def _old_key(key: bytes) -> OldKey:
    query_id, _, lane = key.decode().partition("/")
    return OldKey(query_id, lane)


@dataclass
class _Known:
    """What has been read of a partition of the commit topic."""

    next_offset: int
    markers: dict[bytes, bytes]


class MarkerReader:
    """Reads what is new since it read last. Keep one in a process, and use it on one thread."""

    def __init__(
        self,
        client: Mapping[str, str],
        topic: str,
        group: str,
        *,
        has_one_record_a_transaction: bool = True,
    ) -> None:
        """`has_one_record_a_transaction`: spares the wait for the end of a partition."""
        self._topic = topic
        self._has_one_record_a_transaction = has_one_record_a_transaction
        self._known: dict[int, _Known] = {}
        self._admin = AdminClient({**client, "log_level": 0})
        self._consumer = Consumer(
            {
                **client,
                "log_level": 0,
                "group.id": group,  # asked for by the client; nothing is committed to it
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            }
        )

    def newest(self, partition: int, key: bytes, *, to_the_end: bool) -> Marker | None:
        """The newest committed marker of `key`.

        `to_the_end`: not content with less than all that was in the partition when it was called;
        UnavailableError where an open transaction hides some of it for too long.
        """
        deadline = time.monotonic() + READ_SECONDS
        try:
            end = self._end(partition)
            known = self._known.pop(partition, None)
            if known is None or known.next_offset > end:  # unknown, or the topic was made anew
                known = _Known(max(0, end - _TAIL_RECORDS), {})
                self._read(partition, known, end, deadline, to_the_end=to_the_end)
                if key not in known.markers and end > _TAIL_RECORDS:
                    known = _Known(0, {})
            self._read(partition, known, end, deadline, to_the_end=to_the_end)
        except KafkaException as error:
            raise UnavailableError(
                f"the commit topic {self._topic} could not be read: {error.args[0].str()}",
                retryable=not is_lasting(error.args[0]),
            ) from error
        self._known[partition] = known
        value = known.markers.get(key)
        return None if value is None else decoded(key, value)

    def old_keys(self, partition: int, *, to_the_end: bool) -> list[OldKey]:
        """Keys of older versions in the partition, that with the newest marker last.

        `to_the_end`: as for `newest`.
        """
        self._known.pop(partition, None)  # what was read may be the tail alone
        self.newest(partition, b"", to_the_end=to_the_end)
        markers = self._known[partition].markers
        return [_old_key(key) for key, value in markers.items() if b'"format"' not in value]

    @property
    def partitions(self) -> int:
        """Of the commit topic. Raises KafkaException."""
        return len(
            self._admin.list_topics(self._topic, READ_SECONDS).topics[self._topic].partitions
        )

    def _end(self, partition: int) -> int:
        """One past the newest record, whether it is committed or not."""
        place = TopicPartition(self._topic, partition)
        asked: dict[TopicPartition, Future[object]] = self._admin.list_offsets(
            {place: OffsetSpec.latest()},  # type: ignore[no-untyped-call]  # confluent_kafka's
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=READ_SECONDS,
        )
        offset: int = asked[place].result().offset  # type: ignore[attr-defined]
        return offset

    def _read(
        self, partition: int, known: _Known, end: int, deadline: float, *, to_the_end: bool
    ) -> None:
        if known.next_offset >= end:
            return
        self._consumer.assign([TopicPartition(self._topic, partition, known.next_offset)])
        try:
            while known.next_offset < end:
                message = self._consumer.poll(_POLL_SECONDS)
                if message is not None and self._take(message, known, end) and not to_the_end:
                    return
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"offsets {known.next_offset} to {end} of the commit topic {self._topic}, "
                        f"partition {partition}, could not be read within {READ_SECONDS:.0f} s: "
                        "somebody's transaction is open there, or the broker is slow"
                    )
        finally:
            self._consumer.unassign()

    def _take(self, message: Message, known: _Known, end: int) -> bool:
        """Note a marker; whether this is as far as a committed transaction reaches at present."""
        offset, error = message.offset(), message.error()
        assert offset is not None
        if error is None:
            key = message.key() or b""
            known.markers.pop(key, None)  # kept in the order of the newest marker of each key
            known.markers[key] = message.value() or b""
            # A committed record is followed by the control record of its transaction. Where there
            # is room for just one record more, it is that one.
            is_last = self._has_one_record_a_transaction and offset + 2 >= end
            known.next_offset = end if is_last else offset + 1
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            known.next_offset = max(known.next_offset, offset)
            return True
        # The client looks for its group, whose rights are not needed.
        if not error.retriable() and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise KafkaException(error)
        return False
