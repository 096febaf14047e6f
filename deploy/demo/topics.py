"""Produces the records of the demo and consumes its results. It uses neither the job nor the
service."""

import json
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import takewhile
from threading import Event
from types import TracebackType
from typing import Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from deploy.demo.joins import DemoJoin
from deploy.demo.load import OUTPUT_TOPIC, Delivered, OutputRow, Record, Side
from job.errors import BrokerError
from job.kafka.clients import produce

ID_HEADER = "streamjoin-id"
MATCH_HEADER = "streamjoin-match"
TICK_SECONDS = 0.02
FLUSH_SECONDS = 30.0
ANSWER_SECONDS = 10.0
MESSAGES_AT_ONCE = 1_000
SAMPLE_ROWS = 20


class Feed:
    """Sends the load on a separate thread, in real time, for `seconds` or until it is closed.
    `with Feed(...) as feed:` starts and ends it.

    If the run has an end, it keeps the position of each record; in an endless run these would fill
    the memory.
    """

    def __init__(self, bootstrap_servers: str, join: DemoJoin, seconds: int | None) -> None:
        self._join = join
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                # A record that is sent again after a lost answer must not be stored twice.
                "enable.idempotence": True,
                "linger.ms": 5,
                # Failed records are raised; retries are not logged.
                "log_level": 0,
            }
        )
        self._seconds = seconds
        self._ending = Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._work: Future[None] | None = None
        self._failure: KafkaError | None = None
        self.sent: Counter[Side] = Counter()
        self.delivered: list[Delivered] = []
        self.ends: dict[tuple[Side, int], int] = {}
        """Offset after the last acknowledged record of each partition."""
        self.newest_ms = 0
        """Time of arrival of the newest record."""

    def __enter__(self) -> Self:
        self._work = self._thread.submit(self._send_load)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._thread.shutdown()

    @property
    def is_done(self) -> bool:
        """Whether all records are sent; raises the error that stopped the feed."""
        assert self._work is not None
        if not self._work.done():
            return False
        self._work.result()
        return True

    def send_last(self, records: Iterable[Record]) -> None:
        """Send these records after the load."""
        for record in records:
            self._send(record)
        self._flush()

    def _send_load(self) -> None:
        start, start_ms = time.monotonic(), int(time.time() * 1000)
        for arrival_ms, record in _until(self._seconds, start_ms, self._join.records(start_ms)):
            if not self._reaches(start + (arrival_ms - start_ms) / 1000):
                return
            self._send(record)
            self.newest_ms = arrival_ms
        self._flush()

    def _reaches(self, moment: float) -> bool:
        """Wait until `moment` (time.monotonic). False: the feed has to end before."""
        while time.monotonic() < moment:
            self._producer.poll(0)
            if self._ending.wait(TICK_SECONDS):
                return False
        return not self._ending.is_set()

    def _send(self, record: Record) -> None:
        sent_after = len(self.delivered)

        def note(error: KafkaError | None, message: Message) -> None:
            if error:
                self._failure = self._failure or error
                return
            delivered = _delivered(record, message, sent_after)
            self.ends[record.side, delivered.partition] = delivered.offset + 1
            if self._seconds is not None:
                self.delivered.append(delivered)

        if self._failure:
            raise BrokerError(f"the sample records cannot be sent: {self._failure.str()}")
        topic = self._join.topics[record.side]
        produce(self._producer, topic, record.value, record.key, on_delivery=note)
        self.sent[record.side] += 1

    def _flush(self) -> None:
        unsent = self._producer.flush(FLUSH_SECONDS)
        if unsent or self._failure:
            reason = self._failure.str() if self._failure else "the broker does not answer"
            raise BrokerError(f"{unsent or 'some'} sample records could not be sent: {reason}")


class OutputTail:
    """The newest rows of either kind in the growing output topic."""

    def __init__(self, consumer: Consumer, matched_column: str) -> None:
        self._consumer = consumer
        self._matched_column = matched_column
        self.newest_matched: deque[dict[str, object]] = deque(maxlen=SAMPLE_ROWS)
        self.newest_unmatched: deque[dict[str, object]] = deque(maxlen=SAMPLE_ROWS)

    def read_on(self) -> None:
        """Consume the records that have arrived since the last call, without waiting for more."""
        for message in self._consumer.consume(MESSAGES_AT_ONCE, timeout=0):
            if not message.error():
                self._take_in(json.loads(message.value() or b"{}"))

    def _take_in(self, row: dict[str, object]) -> None:
        if row.get(self._matched_column) is None:
            self.newest_unmatched.append(row)
        else:
            self.newest_matched.append(row)


@contextmanager
def output_tail(bootstrap_servers: str, join: DemoJoin) -> Iterator[OutputTail]:
    with _reader(bootstrap_servers, join.output_topic) as (consumer, _):
        yield OutputTail(consumer, join.matched_column)


def output_rows(
    bootstrap_servers: str, *, topic: str = OUTPUT_TOPIC, timeout_seconds: float = 60.0
) -> list[OutputRow]:
    """All committed records of the topic, from its beginning to its current end."""
    deadline = time.monotonic() + timeout_seconds
    rows: list[OutputRow] = []
    with _reader(bootstrap_servers, topic) as (consumer, partitions):
        unread = set(partitions)
        while unread:
            if time.monotonic() > deadline:
                raise BrokerError(f"topic {topic} could not be read in {timeout_seconds:g} s")
            for message in consumer.consume(MESSAGES_AT_ONCE, timeout=TICK_SECONDS):
                error = message.error()
                if error is None:
                    rows.append(_output_row(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                elif not error.retriable():
                    raise BrokerError(f"topic {topic} cannot be read: {error.str()}")
    return rows


def _until(
    seconds: int | None, start_ms: int, records: Iterable[tuple[int, Record]]
) -> Iterable[tuple[int, Record]]:
    if seconds is None:
        return records
    end_ms = start_ms + seconds * 1000
    return takewhile(lambda arriving: arriving[0] < end_ms, records)


def _delivered(record: Record, message: Message, sent_after: int) -> Delivered:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Delivered(record, partition, offset, sent_after)


@contextmanager
def _reader(bootstrap_servers: str, topic: str) -> Iterator[tuple[Consumer, list[int]]]:
    """A consumer at the beginning of each partition of the topic, and these partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "streamjoin-demo",  # required, but nothing is ever committed
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            # The broker may end first when the demo stops: this is not an error.
            "log_level": 0,
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, ANSWER_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        yield consumer, partitions
    except KafkaException as error:
        raise BrokerError(f"topic {topic} cannot be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _output_row(message: Message) -> OutputRow:
    headers = dict(message.headers() or [])
    return OutputRow(
        id=_text(headers.get(ID_HEADER)) or "(no id)",
        key=_text(message.key()),
        value=_text(message.value()) or "(no value)",
        match=_text(headers.get(MATCH_HEADER)),
    )


def _text(content: bytes | str | None) -> str | None:
    return content.decode(errors="replace") if isinstance(content, bytes) else content
