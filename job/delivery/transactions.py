"""Runs on the executors: writes the rows of one state partition in one Kafka transaction.

In a Python worker of Spark, which is handed rows as Arrow batches. It knows nothing of the plan,
and what it does next is decided by commit_protocol.py.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException, Producer
from pyspark import TaskContext

from job.delivery import producers
from job.delivery.commit_protocol import (
    AbortedError,
    Batch,
    DisagreementError,
    FencedError,
    Marker,
    NotDeliveredError,
    Result,
    Step,
    TakenOverError,
    UnavailableError,
    UnknownOutcomeError,
    delivered_once,
    run,
)
from job.delivery.markers import MarkerReader, encoded, marker_key

REPORT_DDL = "partition INT, result STRING, rows BIGINT, message STRING, retryable BOOLEAN"
REPORT_FIELDS = pa.schema(
    [
        ("partition", pa.int32()),
        ("result", pa.string()),
        ("rows", pa.int64()),
        ("message", pa.string()),
        ("retryable", pa.bool_()),
    ]
)
_ROOM_SECONDS = 1.0
_MESSAGE_BYTES_MIN = 1_000  # librdkafka takes no less

Headers = list[tuple[str, str | bytes | None]]

_RESULTS: dict[type[NotDeliveredError], str] = {
    AbortedError: "aborted",
    DisagreementError: "disagreement",
    FencedError: "fenced",
    TakenOverError: "taken_over",
    UnavailableError: "unavailable",
    UnknownOutcomeError: "unknown",
}


@dataclass(frozen=True)
class Target:
    """Where a query writes to, and as whom. Pickled and sent to the executors."""

    client: tuple[tuple[str, str], ...] = field(repr=False)
    """How librdkafka reaches the brokers: its settings."""
    name: str
    query_id: str
    output_topic: str
    id_header: str | None
    """Of what the third column holds, a record's id; None: it holds the record's headers."""
    commit_topic: str
    transaction_timeout_seconds: int
    record_bytes_max: int
    """The largest record that the output topic takes."""

    def producer_settings(self, lane: "TransactionSlot") -> dict[str, str | int | bool]:
        return {
            **dict(self.client),
            **producers.SETTINGS,
            "message.max.bytes": max(self.record_bytes_max, _MESSAGE_BYTES_MIN),
            "transactional.id": transactional_id(self.name, lane.name),
            "transaction.timeout.ms": self.transaction_timeout_seconds * 1000,
        }


@dataclass(frozen=True)
class TransactionSlot:
    """Who may write beside others of the same query, in transactions of its own."""

    name: str
    commit_partition: int
    """Of the commit topic: no two lanes share one, see markers.py."""


def lane_of(partition: int) -> TransactionSlot:
    """A state partition's."""
    return TransactionSlot(str(partition), partition)


def transactional_id(name: str, lane: str) -> str:
    """The same for all queries of a name, so that each one fences the others.

    Begins with what an operator can give rights to before there is a query.
    """
    return f"streamjoin-{name}-{lane}"


@dataclass(frozen=True)
class Report:
    """What became of one lane's batch."""

    partition: int
    """The lane's in the commit topic: of a state partition, its number."""
    result: str
    """A Result, or aborted, fenced, unknown, unavailable, disagreement or taken_over."""
    rows: int
    """Written, where the result is a Result."""
    message: str | None = None
    retryable: bool = False


@dataclass(frozen=True)
class Write:
    """What Spark calls in a worker, with the rows of one partition: (key, value, id), or headers in
    the place of the id."""

    target: Target
    batch: Batch
    lane: TransactionSlot | None = None
    """None: that of the partition."""

    def __call__(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        lane = self.lane or lane_of(context.partitionId())
        report = delivered(self.target, self.batch, lane, rows)
        columns = [[getattr(report, name)] for name in REPORT_FIELDS.names]
        yield pa.RecordBatch.from_arrays(
            [pa.array(*pair) for pair in zip(columns, REPORT_FIELDS.types, strict=True)],
            schema=REPORT_FIELDS,
        )


def delivered(
    target: Target, batch: Batch, lane: TransactionSlot, rows: Iterator[pa.RecordBatch]
) -> Report:
    """Deliver `rows` once. What fails is reported, not raised: Spark would add a stack trace."""
    attempt = Attempt(target, batch, lane, rows)
    try:
        result = run(delivered_once(batch), attempt.perform)
    except NotDeliveredError as failure:
        return Report(
            lane.commit_partition,
            _RESULTS[type(failure)],
            rows=0,
            message=str(failure),
            retryable=getattr(failure, "retryable", isinstance(failure, UnknownOutcomeError)),
        )
    producers.prepare(target.producer_settings(lane))
    rows_written = 0 if result is Result.SKIPPED else attempt.rows_written
    return Report(lane.commit_partition, result.value, rows_written)


class Attempt:
    """Performs the protocol's steps on Kafka, for one batch of one lane."""

    def __init__(
        self, target: Target, batch: Batch, lane: TransactionSlot, rows: Iterator[pa.RecordBatch]
    ) -> None:
        self.rows_written = 0
        self._target = target
        self._batch = batch
        self._lane = lane
        self._partition = lane.commit_partition
        self._rows = rows
        self._key = marker_key(target.name, lane.name)
        self._producer: Producer | None = None
        self._begun_at = time.monotonic()
        self._steps: dict[Step, Callable[[], Marker | None]] = {
            Step.LOOK: partial(self._newest_marker, to_the_end=False),
            Step.READ_MARKER: partial(self._newest_marker, to_the_end=True),
            Step.INIT: self._init,
            Step.BEGIN: self._begin,
            Step.WRITE_ROWS: self._write_rows,
            Step.WRITE_MARKER: self._write_marker,
            Step.COMMIT: self._commit,
            Step.ABORT: self._abort,
            Step.DROP_ROWS: self._drop_rows,
        }

    def perform(self, step: Step) -> Marker | None:
        try:
            return self._steps[step]()
        except KafkaException as error:
            raise self._failure(step, error) from error

    def _failure(self, step: Step, error: KafkaException) -> NotDeliveredError:
        failure = producers.failure_of(step, error)
        limit = self._target.transaction_timeout_seconds
        if isinstance(failure, FencedError) and time.monotonic() - self._begun_at >= limit:
            # The coordinator fences a producer whose transaction it has aborted by itself.
            return AbortedError(
                f"the transaction was open for longer than {limit} s (its timeout)", retryable=True
            )
        return failure

    def _newest_marker(self, *, to_the_end: bool) -> Marker | None:
        return _reader(self._target).newest(self._partition, self._key, to_the_end=to_the_end)

    def _init(self) -> None:
        settings = self._target.producer_settings(self._lane)
        self._producer = producers.initialised(settings, self._target.output_topic)

    @property
    def _initialised(self) -> Producer:
        assert self._producer is not None, "the protocol begins with INIT"
        return self._producer

    def _begin(self) -> None:
        self._begun_at = time.monotonic()
        self._initialised.begin_transaction()

    def _write_rows(self) -> None:
        produce, topic, header = (
            self._initialised.produce,
            self._target.output_topic,
            self._target.id_header,
        )
        for rows in self._rows:
            columns = (column.to_pylist() for column in rows.columns)
            for key, value, third in zip(*columns, strict=True):
                headers = _pairs(third) if header is None else [(header, third)]
                try:
                    produce(topic, value, key, headers=headers)
                except BufferError:
                    self._produce_when_there_is_room(value, key, headers)
            self.rows_written += rows.num_rows

    def _produce_when_there_is_room(
        self, value: bytes | None, key: bytes | None, headers: Headers
    ) -> None:
        """Ends: a record that the broker does not take in time fails the transaction."""
        while True:
            self._initialised.poll(_ROOM_SECONDS)
            try:
                self._initialised.produce(self._target.output_topic, value, key, headers=headers)
            except BufferError:
                continue
            return

    def _write_marker(self) -> None:
        self._initialised.produce(
            self._target.commit_topic, encoded(self._batch.marker), self._key, self._partition
        )

    def _commit(self) -> None:
        self._initialised.commit_transaction(producers.COMMIT_SECONDS)

    def _abort(self) -> None:
        try:
            self._initialised.abort_transaction(producers.INIT_SECONDS)
        except KafkaException:
            return  # left to whoever comes next

    def _drop_rows(self) -> None:
        for _ in self._rows:
            pass


def _pairs(headers: list[dict[str, Any]]) -> Headers:
    return [(header["key"], header["value"]) for header in headers]


_readers: dict[tuple[object, ...], MarkerReader] = {}


def _reader(target: Target) -> MarkerReader:
    """One a process, kept: it knows what it has read."""
    reads = (target.client, target.commit_topic, target.name)
    if reads not in _readers:
        _readers.clear()
        _readers[reads] = new_reader(target)
    return _readers[reads]


def new_reader(target: Target, *, has_one_record_a_transaction: bool = True) -> MarkerReader:
    return MarkerReader(
        dict(target.client),
        target.commit_topic,
        f"streamjoin-{target.name}",
        has_one_record_a_transaction=has_one_record_a_transaction,
    )
