"""Runs on the executors: writes the rows of one state partition in one Kafka transaction.

A Python worker of Spark passes the rows as Arrow batches. commit_protocol.py decides the steps.
Must not depend on the plan.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException, Producer
from pyspark import TaskContext

from job.dataflow.output_columns import PARTITION, TIMESTAMP
from job.delivery import producers
from job.delivery.commit_protocol import (
    AbortedError,
    Batch,
    DisagreementError,
    Marker,
    NotDeliveredError,
    ProducerFencedError,
    Result,
    Step,
    TakenOverError,
    UnavailableError,
    UnknownOutcomeError,
    deliver_once,
    run,
)
from job.delivery.markers import MarkerReader, encoded, marker_key
from job.kafka.clients import ANY_PARTITION, produce

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
_COLUMNS = 3  # key, value, id or headers
_NOW = 0  # librdkafka then sets the timestamp

Headers = list[tuple[str, str | bytes | None]]

_RESULTS: dict[type[NotDeliveredError], str] = {
    AbortedError: "aborted",
    DisagreementError: "disagreement",
    ProducerFencedError: "fenced",
    TakenOverError: "taken_over",
    UnavailableError: "unavailable",
    UnknownOutcomeError: "unknown",
}


@dataclass(frozen=True)
class Target:
    """The topics of a query and its identity. Pickled and sent to the executors."""

    client: tuple[tuple[str, str], ...] = field(repr=False)
    """Settings of librdkafka, with secrets."""
    name: str
    query_id: str
    output_topic: str
    id_header: str | None
    """Header for the record id (third column). None: the third column contains all headers."""
    commit_topic: str
    transaction_timeout_seconds: int
    record_bytes_max: int
    """Largest record that the output topic accepts."""

    def producer_settings(self, slot: "TransactionSlot") -> dict[str, str | int | bool]:
        return {
            **dict(self.client),
            **producers.SETTINGS,
            **producers.size_limits(self.record_bytes_max),
            "transactional.id": transactional_id(self.name, slot.name),
            "transaction.timeout.ms": self.transaction_timeout_seconds * 1000,
        }


@dataclass(frozen=True)
class TransactionSlot:
    """One of the concurrent transactional producers of a query: a state partition, or the dead
    letters."""

    name: str
    commit_partition: int
    """Partition of the commit topic. No two slots share one: see markers.py."""


def slot_of(partition: int) -> TransactionSlot:
    """The slot of a state partition."""
    return TransactionSlot(str(partition), partition)


def transactional_id(name: str, slot: str) -> str:
    """The same for all queries of a name, so that each query fences the others.

    Has a fixed prefix, so that an ACL for it can exist before the query.
    """
    return f"streamjoin-{name}-{slot}"


@dataclass(frozen=True)
class Report:
    """Outcome of the batch in one slot."""

    partition: int
    """Partition of the commit topic; for a state partition, its number."""
    result: str
    """A Result, or aborted, fenced, unknown, unavailable, disagreement or taken_over."""
    rows: int
    """Rows written, if `result` is a Result."""
    message: str | None = None
    retryable: bool = False


@dataclass(frozen=True)
class Write:
    """The function that Spark calls in a worker with the rows of one partition.

    Columns: key, value, the record id or the headers (Target.id_header), and optionally TIMESTAMP,
    in milliseconds, and PARTITION, which may be null.
    """

    target: Target
    batch: Batch
    slot: TransactionSlot | None = None
    """None: the slot of the partition."""

    def __call__(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        slot = self.slot or slot_of(context.partitionId())
        report = deliver(self.target, self.batch, slot, rows)
        columns = [[getattr(report, name)] for name in REPORT_FIELDS.names]
        yield pa.RecordBatch.from_arrays(
            [pa.array(*pair) for pair in zip(columns, REPORT_FIELDS.types, strict=True)],
            schema=REPORT_FIELDS,
        )


def deliver(
    target: Target, batch: Batch, slot: TransactionSlot, rows: Iterator[pa.RecordBatch]
) -> Report:
    """Deliver `rows` once. Failures are reported, not raised: Spark would add a stack trace."""
    attempt = Attempt(target, batch, slot, rows)
    try:
        result = run(deliver_once(batch), attempt.perform)
    except NotDeliveredError as failure:
        return Report(
            slot.commit_partition,
            _RESULTS[type(failure)],
            rows=0,
            message=str(failure),
            retryable=getattr(failure, "retryable", isinstance(failure, UnknownOutcomeError)),
        )
    producers.prepare(target.producer_settings(slot))
    rows_written = 0 if result is Result.SKIPPED else attempt.rows_written
    return Report(slot.commit_partition, result.value, rows_written)


class Attempt:
    """Performs the steps of the protocol on Kafka, for one batch in one slot."""

    def __init__(
        self, target: Target, batch: Batch, slot: TransactionSlot, rows: Iterator[pa.RecordBatch]
    ) -> None:
        self.rows_written = 0
        self._target = target
        self._batch = batch
        self._slot = slot
        self._partition = slot.commit_partition
        self._rows = rows
        self._key = marker_key(target.name, slot.name)
        self._producer: Producer | None = None
        self._begun_at = time.monotonic()
        self._steps: dict[Step, Callable[[], Marker | None]] = {
            Step.PEEK_MARKER: partial(self._newest_marker, to_the_end=False),
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
        if isinstance(failure, ProducerFencedError) and time.monotonic() - self._begun_at >= limit:
            # The coordinator aborts a transaction at its timeout and fences its producer.
            return AbortedError(
                f"the transaction was open for longer than its timeout of {limit} s. If this "
                "repeats, add cores to the job, or find out why the brokers are slow",
                retryable=True,
            )
        return failure

    def _newest_marker(self, *, to_the_end: bool) -> Marker | None:
        return _reader(self._target).newest(self._partition, self._key, to_the_end=to_the_end)

    def _init(self) -> None:
        settings = self._target.producer_settings(self._slot)
        self._producer = producers.init_producer(settings, self._target.output_topic)

    @property
    def _initialized(self) -> Producer:
        assert self._producer is not None, "the protocol begins with INIT"
        return self._producer

    def _begin(self) -> None:
        self._begun_at = time.monotonic()
        self._initialized.begin_transaction()

    def _write_rows(self) -> None:
        producer, topic = self._initialized, self._target.output_topic
        header = self._target.id_header
        for rows in self._rows:
            columns = [column.to_pylist() for column in rows.columns[:_COLUMNS]]
            columns += [_optional(rows, TIMESTAMP, _NOW), _optional(rows, PARTITION, ANY_PARTITION)]
            for key, value, third, at, number in zip(*columns, strict=True):
                headers = _pairs(third) if header is None else [(header, third)]
                produce(producer, topic, value, key, number, timestamp=at, headers=headers)
            self.rows_written += rows.num_rows

    def _write_marker(self) -> None:
        topic, marker = self._target.commit_topic, encoded(self._batch.marker)
        produce(self._initialized, topic, marker, self._key, self._partition)

    def _commit(self) -> None:
        self._initialized.commit_transaction(producers.COMMIT_SECONDS)

    def _abort(self) -> None:
        try:
            self._initialized.abort_transaction(producers.INIT_SECONDS)
        except KafkaException:
            return  # the next INIT aborts it

    def _drop_rows(self) -> None:
        for _ in self._rows:
            pass


def _optional(rows: pa.RecordBatch, name: str, default: int) -> list[int]:
    """The values of a column, with `default` for nulls, or if there is no such column."""
    if name not in rows.schema.names:
        return [default] * rows.num_rows
    return [default if value is None else value for value in rows.column(name).to_pylist()]


def _pairs(headers: list[dict[str, Any]]) -> Headers:
    return [(header["key"], header["value"]) for header in headers]


_readers: dict[tuple[object, ...], MarkerReader] = {}


def _reader(target: Target) -> MarkerReader:
    """The reader of this process. It is kept, because it continues from its last offset.

    Another query gets another reader: a change may have added partitions to the commit topic, which
    the clients of the old one do not find.
    """
    key = (target.client, target.commit_topic, target.name, target.query_id)
    if key not in _readers:
        _readers.clear()
        _readers[key] = new_reader(target)
    return _readers[key]


def new_reader(target: Target, *, has_one_record_a_transaction: bool = True) -> MarkerReader:
    return MarkerReader(
        dict(target.client),
        target.commit_topic,
        f"streamjoin-{target.name}",
        has_one_record_a_transaction=has_one_record_a_transaction,
    )
