"""The Java writer of transactions, on a broker: writer/transactions.py."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from deploy.local.kafka import EmbeddedKafka
from job.delivery.commit_protocol import Marker
from job.delivery.markers import MarkerReader, encoded, marker_key
from job.delivery.producers import is_lasting, with_remedy
from job.kafka.clients import admin
from job.spark.failures import cause_of_class, failure_of
from job.writer.transactions import Delivered
from tests.faults.proxied_kafka import proxied_kafka
from tests.faults.proxy import Api, Point, Proxy
from tests.semantics.planted_java import Plant, compile_plants, use_plant
from tests.semantics.transaction_writes import (
    DEAD_LETTER_SLOT,
    PATIENCE_SECONDS,
    ROWS,
    Found,
    Writes,
)

CUT = 5
"""Number of rows that the interval has before it is repeated."""

PLANTED: Mapping[str, Plant] = {
    "id_check_skipped": Plant("TransactionWriter.java", "if (!slot.isDelivered(id)) {", "{"),
    "ids_committed_after_their_rows": Plant(
        "TransactionSlot.java",
        "    sendPart();\n    requests.begin();",
        "    producer.commitTransaction();\n    producer.beginTransaction();\n"
        "    sendPart();\n    requests.begin();",
    ),
    "ids_committed_before_their_rows": Plant(
        "TransactionSlot.java",
        "      producer.send(row);\n",
        "      addId(id);\n      sendPart();\n      producer.commitTransaction();\n"
        "      producer.beginTransaction();\n      producer.send(row);\n",
    ),
    "dead_letters_committed_alone": Plant(
        "TransactionSlot.java",
        "      producer.send(row);\n",
        "      producer.send(row);\n      if (!row.topic().equals(target.outputTopic)) {\n"
        "        producer.commitTransaction();\n        producer.beginTransaction();\n      }\n",
    ),
    "dead_letters_without_ids": Plant(
        "TransactionSlot.java",
        "      addId(id);\n",
        "      if (row.topic().equals(target.outputTopic)) {\n        addId(id);\n      }\n",
    ),
    "missing_marker_accepted": Plant(
        "DeliveredParts.java", "batchId > since && newestBatch != batchId - 1", "false"
    ),
    "fence_ignored": Plant("DeliveredParts.java", "newestFence > fence", "false"),
}
PLANTED_IN_SLOTS: Mapping[str, Plant] = {
    "slot_of_the_task": Plant(
        "DeliveryTarget.java", "return onlySlot == null ? ", "return true ? "
    ),
    "marker_in_the_partition_of_the_task": Plant(
        "TransactionSlot.java",
        "new ProducerRecord<>(target.commitTopic, slotId.partition(), ",
        "new ProducerRecord<>(target.commitTopic, TaskContext.getPartitionId(), ",
    ),
}
T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedKafka, Proxy]]:
    with proxied_kafka(tmp_path_factory.mktemp("kafka")) as both:
        yield both


@pytest.fixture(scope="module")
def planted() -> None:
    compile_plants({**PLANTED, **PLANTED_IN_SLOTS})


def check(spark: SparkSession, broker: tuple[EmbeddedKafka, Proxy], name: str, tmp: Path) -> None:
    """Write an interval and its repetition. Raises AssertionError if the writer is wrong."""
    kafka, proxy = broker
    writes = Writes(spark, kafka, name, tmp)
    cut, first = Counter(ROWS[:CUT]), writes.run()
    second_commit = Point(Api.END_TXN, writes.transactional_id, passing=1)
    proxy.catch(second_commit)
    query = writes.begin_interval(first, ROWS[:CUT])
    try:
        proxy.wait_until_caught(second_commit)
        committed = writes.found()
        assert committed.rows == committed.parts
        assert committed.rows < cut
        assert Found(cut, cut) == writes.found("read_uncommitted")
    finally:
        proxy.release()
        query.awaitTermination(PATIENCE_SECONDS)
        first.close()
    assert Found(cut, cut) == writes.found()

    # A join with a table, or one that picks, may compute a row again with another match.
    assert "" == writes.failure(writes.run(repeats=0), ROWS, 0, "-new")
    rows = cut + Counter(f"{row_id}-new" for row_id in ROWS[CUT:])
    assert rows == writes.found().rows

    refusal = writes.failure(writes.run(), "x", 2)
    assert "batch 1 was delivered, but its marker is missing" in refusal
    writes.fence(1)
    refusal = writes.failure(writes.run(), "x", 1)
    assert "has fence 1 of the query, and this run began with fence 0" in refusal
    assert rows == writes.found().rows


def test_rows_dead_letters_and_ids_are_committed_together_and_each_row_once(
    spark: SparkSession, broker: tuple[EmbeddedKafka, Proxy], tmp_path: Path
) -> None:
    check(spark, broker, "writer", tmp_path)


def test_record_of_another_program_is_reported_with_its_place_and_the_remedy_helps(
    spark: SparkSession, broker: tuple[EmbeddedKafka, Proxy], tmp_path: Path
) -> None:
    kafka, _ = broker
    writes = Writes(spark, kafka, "foreign", tmp_path)
    key = marker_key("foreign", "0")
    assert "" == writes.failure(writes.run(), "a", 0)
    writes.commit_record(key, b"{}")

    with pytest.raises(Py4JJavaError) as raised:
        writes.write(writes.run(), "b", 1)
    failure = cause_of_class(raised.value, "streamjoin.DeliveryFailure")
    assert ("unavailable", False) == (failure.kind(), failure.isRetryable())
    # Offset 0: the marker. Offset 1: the end of its transaction.
    place = f"at offset 2 of the commit topic {writes.commits}, partition 0, is 2 bytes without"
    assert place in failure.getMessage()

    assert "Write the previous record of the key again" in failure.getMessage()
    writes.commit_record(key, encoded(Marker(0, "offsets", "q")))
    assert "" == writes.failure(writes.run(), "b", 1)
    assert Counter("ab") == writes.found().rows


def test_batch_that_does_not_fit_the_buffer_of_the_producer_is_written_or_retried(
    spark: SparkSession, broker: tuple[EmbeddedKafka, Proxy], tmp_path: Path
) -> None:
    """The buffer has room for two records. The second batch finds no room while the broker does not
    answer."""
    kafka, proxy = broker
    writes = Writes(spark, kafka, "buffer", tmp_path)
    producer = {"buffer.memory": "200", "batch.size": "100", "max.block.ms": "5000"}
    writes.write(writes.run(producer=producer), ROWS, 0)
    assert Counter(ROWS) == writes.found().rows

    stalled = Point(Api.PRODUCE, writes.transactional_id)
    proxy.catch(stalled)
    try:
        with pytest.raises(Py4JJavaError) as raised:
            writes.write(writes.run(producer=producer), "uvwxyz", 1)
    finally:
        proxy.release()
    failure = failure_of(raised.value, "the broker")
    assert failure.retryable
    assert "lost Kafka at the broker" in str(failure)
    assert Counter(ROWS) == writes.found().rows


@pytest.mark.parametrize(
    ("name", "config", "value", "code", "remedy"),
    [
        (
            "compact",
            {"cleanup.policy": "compact"},
            b"1",
            KafkaError.INVALID_RECORD,
            "accepts no record without a key: set output.key",
        ),
        (
            "small",
            {"max.message.bytes": "5000"},
            os.urandom(9_000),
            KafkaError.MSG_SIZE_TOO_LARGE,
            "was decreased after the start of the query",
        ),
    ],
    ids=["compact", "small"],
)
def test_record_that_the_broker_refuses_is_not_retried_and_has_a_remedy(
    spark: SparkSession,
    broker: tuple[EmbeddedKafka, Proxy],
    tmp_path: Path,
    name: str,
    config: Mapping[str, str],
    value: bytes,
    code: int,
    remedy: str,
) -> None:
    """A query reads the settings of its topics at its start. They may change afterwards."""
    kafka, _ = broker
    writes = Writes(spark, kafka, name, tmp_path, config)
    with pytest.raises(Py4JJavaError) as raised:
        writes.write_records(writes.run(), [(writes.output, None, value, [], "id", None, None)])

    failure = cause_of_class(raised.value, "streamjoin.DeliveryFailure")
    assert ("aborted", 0, "0") == (failure.kind(), failure.batchId(), failure.slot())
    assert code == failure.errorCode()
    assert is_lasting(code)
    assert remedy in with_remedy(failure.getMessage(), failure.errorCode())
    assert Found(Counter(), Counter()) == writes.found()


def test_record_is_written_with_the_key_headers_timestamp_and_partition_that_it_has(
    spark: SparkSession, broker: tuple[EmbeddedKafka, Proxy], tmp_path: Path
) -> None:
    kafka, _ = broker
    writes = Writes(spark, kafka, "given", tmp_path)
    kafka.create_topics(["given"], partitions=3)
    headers = [("h", b"\xff"), ("h", None), ("", b"")]
    stored = [
        (b"\xfe", b"{}", headers, T0, 2),
        (None, b"", [], T0 + 1, 2),
        (b"", None, [], T0 + 2, 2),
        (b"\xfe", b"partition of the key", [], T0 + 3, 0),
    ]
    partitions = [2, 2, 2, None]
    records = [
        ("given", key, value, headers, str(number), timestamp, partition)
        for number, ((key, value, headers, timestamp, _), partition) in enumerate(
            zip(stored, partitions, strict=True)
        )
    ]
    writes.write_records(writes.run(), records)

    found = [
        (each.key(), each.value(), each.headers() or [], each.timestamp()[1], each.partition())
        for partition in (2, 0)
        for each in writes.records("given", partition)
    ]
    assert stored == found


def check_dead_letters(
    spark: SparkSession, broker: tuple[EmbeddedKafka, Proxy], name: str, tmp: Path
) -> None:
    """Write the dead letters of some batches. Raises AssertionError if the writer is wrong."""
    kafka, _ = broker
    writes = Writes(spark, kafka, name, tmp)
    slot, partition = DEAD_LETTER_SLOT
    key = marker_key(name, slot)

    def marker_keys() -> list[set[bytes | None]]:
        return [{each.key() for each in writes.records(writes.commits, n)} for n in range(2)]

    first = writes.run(only_slot=DEAD_LETTER_SLOT)
    writes.write(first, "b", 3)
    assert Delivered(results=0, committed=1, skipped=0) == first.take_delivered()
    assert [set(), {key}] == marker_keys()

    second = writes.run(only_slot=DEAD_LETTER_SLOT)
    try:
        writes.write_one(second, "b", 3)
        assert Delivered(results=0, committed=0, skipped=1) == second.take_delivered()
        # The batches between them have no dead letters.
        for batch_id in (6, 7, 9):
            writes.write_one(second, "d", batch_id)
        assert Delivered(results=0, committed=3, skipped=0) == second.take_delivered()
    finally:
        second.close()
    assert Counter("bddd") == writes.found().rows
    assert [set(), {key}] == marker_keys()
    client = {"bootstrap.servers": kafka.bootstrap_servers}
    reader = MarkerReader(admin(client), client, writes.commits, name)
    newest = reader.newest(partition, key, to_the_end=True)
    assert Marker(9, "offsets", "q") == newest

    refusal = writes.failure(writes.run(only_slot=DEAD_LETTER_SLOT), "b", 8)
    assert "the next batch of the checkpoint is 8, but batch 9 was already delivered" in refusal


def test_dead_letters_of_a_batch_are_written_once_in_a_separate_slot(
    spark: SparkSession, broker: tuple[EmbeddedKafka, Proxy], tmp_path: Path
) -> None:
    check_dead_letters(spark, broker, "own-slot", tmp_path)


CHECKS = {
    **dict.fromkeys(PLANTED, check),
    **dict.fromkeys(PLANTED_IN_SLOTS, check_dead_letters),
}


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("name", CHECKS)
def test_bug_planted_in_the_writer_is_caught(
    spark: SparkSession,
    broker: tuple[EmbeddedKafka, Proxy],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    use_plant(monkeypatch, name)

    with pytest.raises(AssertionError, match=r"^assert "):
        CHECKS[name](spark, broker, name, tmp_path)
