"""Runs of a query that write rows with the Java writer of transactions, through a proxy."""

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from deploy.local.kafka import EmbeddedKafka
from job.delivery.delivered import Fence
from job.delivery.markers import encoded_fence, fence_key
from job.jvm_class import jvm_class
from job.writer.transactions import COLUMNS, Identity, Transactions
from tests.polling import wait_until

SCHEMA = (
    "topic STRING, key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, "
    "id STRING, timestamp BIGINT, partition INT"
)
PATIENCE_SECONDS = 30.0
ROWS = "abcdef"
DEAD = frozenset("bd")
"""Rows that are dead letters."""
DEAD_LETTER_SLOT = ("dead-letters", 1)
"""The slot of the dead letters of micro-batches, and its partition of the commit topic."""


@dataclass(frozen=True)
class Found:
    """Ids of rows in the output and dead-letter topics, and of the parts of the state partition in
    the commit topic."""

    rows: Counter[str]
    parts: Counter[str]


class Writes:
    """Runs of a query that write rows of one state partition, or in DEAD_LETTER_SLOT."""

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
        kafka.create_topics([self.letters], partitions=1)
        kafka.create_topics([self.commits], partitions=2)
        self.transactional_id = f"streamjoin-{name}-0"

    def run(
        self,
        *,
        repeats: int | None = None,
        producer: Mapping[str, str] | None = None,
        only_slot: tuple[str, int] | None = None,
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
            only_slot=only_slot,
        )

    def begin_interval(self, transactions: Transactions, ids: Sequence[str]) -> Any:
        """The query of an interval 0 with these rows. It ends after the interval."""
        rows = self._spark.readStream.schema(SCHEMA).json(str(self._written(ids))).coalesce(1)
        writer = transactions.interval_writer(rows.select(*COLUMNS))
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    def failure(
        self, transactions: Transactions, ids: Sequence[str], batch_id: int, version: str = ""
    ) -> str:
        """The text of the failure of a micro-batch. Empty: its rows were written. `version`: what
        their values have after the id."""
        try:
            self.write(transactions, ids, batch_id, version)
        except Py4JJavaError as error:
            return str(error)
        return ""

    def write(
        self, transactions: Transactions, ids: Sequence[str], batch_id: int, version: str = ""
    ) -> None:
        """Write a micro-batch, the last batch of the run."""
        try:
            self.write_one(transactions, ids, batch_id, version)
        finally:
            transactions.close()

    def write_one(
        self, transactions: Transactions, ids: Sequence[str], batch_id: int, version: str = ""
    ) -> None:
        """Write a micro-batch. More may follow in the run."""
        rows = self._spark.read.schema(SCHEMA).json(str(self._written(ids, version))).coalesce(1)
        transactions.write_batch(rows.select(*COLUMNS), batch_id, "offsets")

    def write_records(self, transactions: Transactions, records: Sequence[tuple[Any, ...]]) -> None:
        """Write `records` (SCHEMA) as batch 0, the last batch of the run."""
        try:
            frame = self._spark.createDataFrame(records, SCHEMA).coalesce(1)
            transactions.write_batch(frame.select(*COLUMNS), 0, "offsets")
        finally:
            transactions.close()

    def _written(self, ids: Sequence[str], version: str = "") -> Path:
        """A folder with a file of records for TransactionWriter.java."""
        folder = self._folder / "".join([*ids, version])
        folder.mkdir(exist_ok=True)
        lines = []
        for each in ids:
            topic = self.letters if each in DEAD else self.output
            value = base64.b64encode(f"{each}{version}".encode()).decode()
            lines.append(json.dumps({"topic": topic, "value": value, "headers": [], "id": each}))
        (folder / "rows.json").write_text("\n".join(lines))
        return folder

    def fence(self, number: int) -> None:
        self.commit_record(fence_key(self._name, "0"), encoded_fence(Fence("q", number)))

    def commit_record(self, key: bytes, value: bytes) -> None:
        """Write a record to the commit topic."""
        producer = Producer({"bootstrap.servers": self._kafka.bootstrap_servers})
        producer.produce(self.commits, value, key, partition=0)
        assert 0 == producer.flush(PATIENCE_SECONDS)

    def wait_until_completed(self) -> None:
        """The coordinator has completed the last transaction. Its answer to a commit comes before
        that, and until then it refuses other requests of the transactional id."""
        jvm: Any = self._spark._jvm
        settings = jvm_class(jvm, "java.util.HashMap")(
            {"bootstrap.servers": self._kafka.bootstrap_servers}
        )
        admin = jvm_class(jvm, "org.apache.kafka.clients.admin.Admin").create(settings)
        try:
            wait_until(
                lambda: self._coordinator_state(admin) == "CompleteCommit",
                PATIENCE_SECONDS,
                "the coordinator has completed the transaction",
            )
        finally:
            admin.close()

    def _coordinator_state(self, admin: Any) -> str:
        [(_, answer)] = admin.describeTransactions([self.transactional_id]).all().get().items()
        return str(answer.state())

    def found(self, isolation_level: str = "read_committed") -> Found:
        values = [
            *self._values(self.output, isolation_level),
            *self._values(self.letters, isolation_level),
        ]
        content = map(json.loads, self._values(self.commits, isolation_level))
        parts = [row_id for record in content for row_id in record.get("ids", [])]
        return Found(Counter(value.decode() for value in values), Counter(parts))

    def _values(self, topic: str, isolation_level: str) -> Iterator[bytes]:
        return (record.value() or b"" for record in self.records(topic, 0, isolation_level))

    def records(
        self, topic: str, partition: int, isolation_level: str = "read_committed"
    ) -> Iterator[Message]:
        """All records of the partition."""
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
            consumer.assign([TopicPartition(topic, partition, 0)])
            while True:
                message = consumer.poll(PATIENCE_SECONDS)
                assert message is not None, f"no end of {topic} within {PATIENCE_SECONDS} s"
                if message.error():
                    return
                yield message
        finally:
            consumer.close()
