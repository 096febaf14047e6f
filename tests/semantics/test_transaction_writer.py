"""The Java writer of transactions, on a broker: real_time/transactions.py."""

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from deploy.local.kafka import EmbeddedKafka
from job.delivery.commit_protocol import Marker
from job.delivery.interval_protocol import Fence
from job.delivery.markers import encoded, encoded_fence, fence_key, marker_key
from job.delivery.producers import is_lasting
from job.real_time.transactions import COLUMNS, Identity, Transactions
from job.spark.failures import cause_of_class, failure_of
from tests.faults.harness import proxied_kafka
from tests.faults.proxy import Api, Point, Proxy
from tests.semantics.planted_java import Plant, compile_plants, use_plant

SCHEMA = (
    "topic STRING, key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, "
    "id STRING, timestamp BIGINT, partition INT"
)
PATIENCE_SECONDS = 30.0
ROWS = "abcdef"
DEAD = frozenset("bd")
"""Rows that are dead letters."""
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


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedKafka, Proxy]]:
    with proxied_kafka(tmp_path_factory.mktemp("kafka")) as both:
        yield both


@pytest.fixture(scope="module")
def planted() -> None:
    compile_plants(PLANTED)


@dataclass(frozen=True)
class Found:
    """Ids of rows in the output and dead-letter topics, and of the parts in the commit topic."""

    rows: Counter[str]
    parts: Counter[str]


class Writes:
    """Runs of a query that write rows of one state partition."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: EmbeddedKafka,
        name: str,
        folder: Path,
        output_config: Mapping[str, str] | None = None,
    ) -> None:
        self._spark, self._kafka, self._name, self._folder = spark, kafka, name, folder
        self.output, self.letters, self.commits = (
            f"{name}-{topic}" for topic in ("output", "letters", "commits")
        )
        kafka.create_topics([self.output], partitions=1, config=output_config)
        kafka.create_topics([self.letters, self.commits], partitions=1)
        self.transactional_id = f"streamjoin-{name}-0"

    def run(
        self, *, repeats: int | None = None, producer: Mapping[str, str] | None = None
    ) -> Transactions:
        servers = {"bootstrap.servers": self._kafka.servers_of("PROXIED")}
        topics = (self.output, self.commits)
        return Transactions(
            self._spark,
            Identity(self._name, "q", *topics, since=0, repeats=repeats, fence=0),
            servers,
            producer or {},
            # So the first row, or the first two, are one transaction of an interval, and all others
            # are the next one.
            commit_interval=timedelta(hours=1),
            timeout=timedelta(minutes=1),
        )

    def begin_interval(self, transactions: Transactions, ids: Sequence[str]) -> Any:
        """The query of an interval 0 with these rows. It ends after the interval."""
        rows = self._spark.readStream.schema(SCHEMA).json(str(self._written(ids))).coalesce(1)
        writer = transactions.interval_writer(rows.select(*COLUMNS))
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    def failure(self, transactions: Transactions, ids: Sequence[str], batch_id: int) -> str:
        """The text of the failure of a micro-batch. Empty: its rows were written."""
        try:
            self.write(transactions, ids, batch_id)
        except Py4JJavaError as error:
            return str(error)
        return ""

    def write(self, transactions: Transactions, ids: Sequence[str], batch_id: int) -> None:
        """Write a micro-batch, the last batch of the run."""
        rows = self._spark.read.schema(SCHEMA).json(str(self._written(ids))).coalesce(1)
        try:
            transactions.write_batch(rows.select(*COLUMNS), batch_id, "offsets")
        finally:
            transactions.close()

    def _written(self, ids: Sequence[str]) -> Path:
        """A folder with a file of records for TransactionWriter.java."""
        folder = self._folder / "".join(ids)
        folder.mkdir(exist_ok=True)
        lines = []
        for each in ids:
            topic = self.letters if each in DEAD else self.output
            value = base64.b64encode(each.encode()).decode()
            lines.append(json.dumps({"topic": topic, "value": value, "headers": [], "id": each}))
        (folder / "rows.json").write_text("\n".join(lines))
        return folder

    def fence(self, number: int) -> None:
        self.commit_record(fence_key(self._name, "0"), encoded_fence(Fence("q", number)))

    def commit_record(self, key: bytes, value: bytes) -> None:
        """Write a record to the commit topic."""
        producer = Producer({"bootstrap.servers": self._kafka.bootstrap_servers})
        producer.produce(self.commits, value, key)
        assert 0 == producer.flush(PATIENCE_SECONDS)

    def found(self, isolation_level: str = "read_committed") -> Found:
        values = [
            *self._values(self.output, isolation_level),
            *self._values(self.letters, isolation_level),
        ]
        content = map(json.loads, self._values(self.commits, isolation_level))
        parts = [row_id for record in content for row_id in record.get("ids", [])]
        return Found(Counter(value.decode() for value in values), Counter(parts))

    def _values(self, topic: str, isolation_level: str) -> Iterator[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._kafka.bootstrap_servers,
                "group.id": "reads-all",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation_level,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            while (message := consumer.poll(PATIENCE_SECONDS)) and not message.error():
                yield message.value() or b""
            assert message is not None, f"no end of {topic} within {PATIENCE_SECONDS} s"
        finally:
            consumer.close()


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

    assert "" == writes.failure(writes.run(repeats=0), ROWS, 0)
    assert Counter(ROWS) == writes.found().rows

    refusal = writes.failure(writes.run(), "x", 2)
    assert "batch 1 was delivered, but its marker is missing" in refusal
    writes.fence(1)
    refusal = writes.failure(writes.run(), "x", 1)
    assert "has fence 1 of the query, and this run began with fence 0" in refusal
    assert Counter(ROWS) == writes.found().rows


def test_rows_dead_letters_and_ids_are_committed_together_and_each_row_once(
    spark: SparkSession, broker: tuple[EmbeddedKafka, Proxy], tmp_path: Path
) -> None:
    check(spark, broker, "writer", tmp_path)


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("name", PLANTED)
def test_bug_planted_in_the_writer_is_caught(
    spark: SparkSession,
    broker: tuple[EmbeddedKafka, Proxy],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    use_plant(monkeypatch, name)

    with pytest.raises(AssertionError, match=r"^assert "):
        check(spark, broker, name, tmp_path)


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


def test_record_that_the_broker_refuses_has_a_code_that_lasts(
    spark: SparkSession, broker: tuple[EmbeddedKafka, Proxy], tmp_path: Path
) -> None:
    """A compacted topic accepts no record without a key."""
    kafka, _ = broker
    writes = Writes(spark, kafka, "refuses", tmp_path, {"cleanup.policy": "compact"})
    with pytest.raises(Py4JJavaError) as raised:
        writes.write(writes.run(), ROWS, 0)

    failure = cause_of_class(raised.value, "streamjoin.DeliveryFailure")
    assert (KafkaError.INVALID_RECORD, "aborted") == (failure.errorCode(), failure.kind())
    assert is_lasting(failure.errorCode())
