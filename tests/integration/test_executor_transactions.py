"""Transactions of the executors on a broker: a full queue, and records that the broker refuses.

The limits of the queue are lowered; 100,000 records and 64 MiB take the same path.
"""

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from deploy.local.kafka import EmbeddedKafka
from job.delivery import producers
from job.delivery.commit_protocol import Batch, Marker
from job.delivery.markers import MarkerReader, marker_key
from job.delivery.transactions import Report, Target, deliver, slot_of
from tests.integration.topics import consume_all

LIMIT = 100
AROUND_LIMIT = [LIMIT - 1, LIMIT, LIMIT + 1]
BATCH = Batch(0, "offsets", since=0, query_id="q")
ROWS_OF_RESULTS = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("id", pa.binary())])
ROWS_OF_DEAD_LETTERS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


class Delivery:
    """Delivers one batch of one state partition."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        name: str,
        id_header: str | None = "id",
        config: Mapping[str, str] | None = None,
        **more: str,
    ) -> None:
        """`config`: that of the output topic. `more`: settings of the clients."""
        self.output, self.commits = f"{name}.out", f"{name}.commits"
        kafka.create_topics([self.output], partitions=1, config=config)
        kafka.create_topics([self.commits], partitions=1)
        self._servers = kafka.bootstrap_servers
        client = {"bootstrap.servers": self._servers, **more}
        self._target = Target(
            tuple(client.items()),
            *(name, BATCH.query_id, self.output, id_header, self.commits),
            transaction_timeout_seconds=60,
            record_bytes_max=1_000_000,
        )

    def deliver(self, values: list[bytes], header: Any, schema: pa.Schema) -> Report:
        rows = [[None] * len(values), values, [header] * len(values)]
        arrays = [pa.array(*column) for column in zip(rows, schema.types, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return deliver(self._target, BATCH, slot_of(0), iter([batch]))

    def check(self, values: list[bytes]) -> None:
        """All records and the marker are committed."""
        records = consume_all(self._servers, self.output, bytes)
        assert values == [record.value for record in records]
        reader = MarkerReader({"bootstrap.servers": self._servers}, self.commits, "full-queue")
        key = marker_key(self._target.name, "0")
        assert Marker(0, "offsets", "q") == reader.newest(0, key, to_the_end=True)


@pytest.mark.parametrize("records", AROUND_LIMIT)
@pytest.mark.parametrize(
    ("id_header", "header", "schema"),
    [("id", b"1", ROWS_OF_RESULTS), (None, [{"key": "h", "value": b"1"}], ROWS_OF_DEAD_LETTERS)],
    ids=["results", "dead letters"],
)
def test_queue_full_of_records_takes_the_marker(
    kafka: EmbeddedKafka, records: int, id_header: str | None, header: Any, schema: pa.Schema
) -> None:
    limit = {"queue.buffering.max.messages": str(LIMIT)}
    delivery = Delivery(kafka, f"queue{records}{id_header}", id_header, **limit)
    values = [str(number).encode() for number in range(records)]

    assert Report(0, "committed", records) == delivery.deliver(values, header, schema)
    delivery.check(values)


@pytest.mark.parametrize("size", [number * 1024 for number in AROUND_LIMIT])
def test_queue_full_of_bytes_takes_the_marker(
    kafka: EmbeddedKafka, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "_QUEUE_KBYTES", LIMIT)
    monkeypatch.setattr(producers, "_RECORD_BYTES_MAX", LIMIT * 1024)
    delivery = Delivery(kafka, f"bytes{size}")
    values = [bytes(size // 2), bytes(size - size // 2)]

    assert Report(0, "committed", 2) == delivery.deliver(values, b"1", ROWS_OF_RESULTS)
    delivery.check(values)


@pytest.mark.parametrize(
    ("name", "config", "size", "remedy"),
    [
        (
            "compact",
            {"cleanup.policy": "compact"},
            1,
            "accepts no record without a key: set output",
        ),
        ("small", {"max.message.bytes": "5000"}, 9_000, "was decreased after the start"),
    ],
)
def test_records_that_the_broker_refuses_have_a_remedy_and_are_not_retried(
    kafka: EmbeddedKafka, name: str, config: dict[str, str], size: int, remedy: str
) -> None:
    report = Delivery(kafka, name, config=config).deliver([os.urandom(size)], b"1", ROWS_OF_RESULTS)

    assert ("aborted", False) == (report.result, report.retryable)
    assert remedy in str(report.message)
