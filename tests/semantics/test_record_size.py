"""The largest results that a topic accepts pass every producer of the job."""

import os
from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deploy.local.kafka import EmbeddedKafka
from job.dataflow.real_time import TopicLimits
from job.dataflow.results import result_bytes
from job.delivery.commit_protocol import Batch
from job.delivery.finished_batch import writable_results
from job.delivery.real_time_delivery import producer_settings
from job.delivery.sink import sink_options
from job.delivery.transactions import Report, Target, deliver, slot_of
from job.kafka.clients import LATEST, admin, list_offsets
from job.kafka.security import KafkaAccess
from job.real_time.transactions import COLUMNS, Identity, Transactions
from tests.unit.specs import plan

MIB = 2**20
HEADERS = [f"h{number}" for number in range(60)]
PLAN = plan(output__headers=dict.fromkeys(HEADERS, "left.campaign"), output__key="left.ad_id")
HEADER = "named_struct('key', '{}', 'value', cast('1' AS BINARY))"
WRITTEN = 2
"""A result that is as large as the topic accepts, and one of a byte less."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    settings = {"message.max.bytes": 100 * MIB}
    jvm = ("-Xmx1g", "-XX:+UseSerialGC")
    folder = tmp_path_factory.mktemp("kafka")
    with EmbeddedKafka(folder, jvm_options=jvm, settings=settings) as broker:
        yield broker


def results(spark: SparkSession, limit: int) -> DataFrame:
    """A result of exactly the limit, one of a byte less and one of a byte more."""
    headers = ", ".join(HEADER.format(name) for name in ("streamjoin-id", *HEADERS))
    # Cannot be compressed: the broker checks the size of the compressed record.
    noise = os.urandom(min(limit, MIB)).hex()
    frame = spark.range(-1, 2).selectExpr(
        "cast('key' AS BINARY) AS key", f"X'{noise}' AS value", f"array({headers}) AS headers", "id"
    )
    (empty,) = (
        frame.limit(1).selectExpr(f"{result_bytes(PLAN)} - octet_length(value) AS size").collect()
    )
    length = f"cast({limit - empty.size} + id AS INT)"
    fill = f"cast(repeat('x', greatest(0, {length} - octet_length(value))) AS BINARY)"
    value = f"substring(concat(value, {fill}), 1, {length})"
    return frame.withColumn("value", F.expr(value)).drop("id")


@pytest.mark.parametrize("limit", [20_000, 40 * MIB])
def test_result_as_large_as_the_topic_accepts_is_written_by_each_producer(
    spark: SparkSession, kafka: EmbeddedKafka, limit: int
) -> None:
    """20,000: with 60 headers. 40 MiB: more than Kafka's default of buffer.memory."""
    access = KafkaAccess(kafka.bootstrap_servers)
    topics = {name: f"size.{name}.{limit}" for name in ("spark", "python", "java")}
    limits = {"max.message.bytes": str(limit)}
    kafka.create_topics(list(topics.values()), partitions=1, config=limits)
    commits = f"size.commits.{limit}"
    kafka.create_topics([commits], partitions=1)
    written = writable_results(results(spark, limit), PLAN, TopicLimits(limit, 0))
    options = sink_options(PLAN, access, limit)
    options["kafka.bootstrap.servers"] = kafka.bootstrap_servers

    written.write.format("kafka").options(**options).option("topic", topics["spark"]).save()

    rows = iter(record_batches(written))
    client = (("bootstrap.servers", kafka.bootstrap_servers),)
    target = Target(client, "python", "q", topics["python"], None, commits, 60, limit)
    report = deliver(target, Batch(0, "offsets", 0, "q"), slot_of(0), rows)
    assert Report(0, "committed", WRITTEN) == report

    transactions = Transactions(
        spark,
        Identity("java", "q", topics["java"], commits, since=0, repeats=None, fence=0),
        dict(client),
        producer_settings(options),
        commit_interval=timedelta(hours=1),
        timeout=timedelta(minutes=1),
    )
    try:
        transactions.write_batch(for_java(written, topics["java"]), 0, "offsets")
    finally:
        transactions.close()

    client_of_offsets = admin({"bootstrap.servers": kafka.bootstrap_servers})
    ends = {
        name: list_offsets(client_of_offsets, topic, [0], LATEST)[0]
        for name, topic in topics.items()
    }
    control = 1  # record of a transaction
    assert {"spark": WRITTEN, "python": WRITTEN + control, "java": WRITTEN + control} == ends


def record_batches(written: DataFrame) -> list[pa.RecordBatch]:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batches = []
    for row in written.toLocalIterator():
        pairs = [{"key": header.key, "value": bytes(header.value)} for header in row.headers]
        columns = {
            "key": pa.array([bytes(row.key)], pa.binary()),
            "value": pa.array([bytes(row.value)], pa.binary()),
            "headers": pa.array([pairs], headers),
        }
        batches.append(pa.RecordBatch.from_pydict(columns))
    return batches


def for_java(written: DataFrame, topic: str) -> DataFrame:
    return written.selectExpr(
        f"'{topic}' AS topic",
        *("key", "value", "headers", "cast(octet_length(value) AS STRING) AS id"),
        *("cast(null AS BIGINT) AS timestamp", "cast(null AS INT) AS partition"),
    ).select(*COLUMNS)
