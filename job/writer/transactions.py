"""Writes records in transactions of Kafka on the executors, without Python: TransactionWriter.java.

    results, dead letters -- TransactionWriter -- TransactionSlot -- one producer for each partition

A transaction contains what is committed together: results, dead letters, and their ids or the
marker of their batch in the commit topic.
"""

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from job.spark.java_classes import check_classes, java_class
from job.spec.durations import milliseconds

ID = "id"
COLUMNS = ("topic", "key", "value", "headers", ID, "timestamp", "partition")
"""Columns of a record, as TransactionWriter.java reads them. ID is the same if the row is computed
again. The timestamp is in milliseconds; null: the time at which the record is written. The
partition is null if the key chooses it."""

_NO_INTERVAL = -1
_NO_PARTITION = -1
_NEVER = 2**63 - 1
"""A batch id that no batch has: the marker of the batch before is not required."""


@dataclass(frozen=True)
class Identity:
    """Topics of the query, and the names of the query in the commit topic."""

    name: str
    query_id: str
    output_topic: str
    commit_topic: str
    since: int
    """First batch of the checkpoint that is delivered exactly once."""
    repeats: int | None
    """Batch id of the recorded interval that the run repeats. None: the run repeats none."""
    fence: int
    """Fence number of the run. 0: there was no fence."""


@dataclass(frozen=True)
class Delivered:
    results: int
    """Results without dead letters."""
    committed: int
    """Transactions."""
    skipped: int
    """Partitions of micro-batches that an earlier attempt had delivered."""


class Transactions:
    """The transactions of one run of the query."""

    def __init__(
        self,
        spark: SparkSession,
        identity: Identity,
        client: Mapping[str, str],
        producer: Mapping[str, str],
        *,
        commit_interval: timedelta,
        timeout: timedelta,
        only_slot: tuple[str, int] | None = None,
    ) -> None:
        """`client`: settings of all of Kafka's clients, with secrets. `producer`: further settings
        of the producers. `only_slot`: its name and its partition of the commit topic. Only some
        batches write to it. None: each state partition has a slot. Raises SetupError if the writer
        was built from other sources."""
        check_classes(spark)
        self._spark = spark
        self._run = str(uuid.uuid4())
        self._target = java_class(spark, "DeliveryTarget")(
            spark.sparkContext._jsc.sc(),
            dict(client),
            dict(producer),
            self._run,
            *(identity.name, identity.query_id, identity.output_topic, identity.commit_topic),
            *(only_slot or (None, _NO_PARTITION)),
            identity.since if only_slot is None else _NEVER,
            _NO_INTERVAL if identity.repeats is None else identity.repeats,
            identity.fence,
            milliseconds(commit_interval),
            milliseconds(timeout),
        )
        self._writer = java_class(spark, "TransactionWriter")
        self._counted = Delivered(0, 0, 0)

    def write_batch(self, records: DataFrame, batch_id: int, fingerprint: str) -> None:
        """Write a micro-batch. `fingerprint`: the fingerprint of its input offsets."""
        self._writer.write(records._jdf, self._target, batch_id, fingerprint)

    def interval_writer(self, records: DataFrame) -> DataStreamWriter:
        """The writer of a query whose batches are intervals."""
        rows = DataFrame(self._writer.records(records._jdf), self._spark)
        writer = rows.writeStream
        writer._jwrite.foreach(self._writer.ofIntervals(self._target))
        return writer

    def take_delivered(self) -> Delivered:
        """Deliveries of the tasks that have ended since the last call."""
        before = self._counted
        target = self._target
        now = self._counted = Delivered(target.results(), target.committed(), target.skipped())
        return Delivered(
            now.results - before.results,
            now.committed - before.committed,
            now.skipped - before.skipped,
        )

    def close(self) -> None:
        """Close the producers in this JVM, and abort their open transactions."""
        with suppress(Exception):  # the JVM may be gone
            self._writer.endRun(self._run)
