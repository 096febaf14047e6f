"""The largest results that a topic accepts pass every producer of the job."""

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deploy.local.kafka import EmbeddedKafka
from job.dataflow.results import result_bytes
from job.dataflow.written import TopicLimits, written
from job.delivery.record_writer import producer_settings, sink_options
from job.kafka.clients import LATEST, admin, list_offsets
from job.kafka.security import KafkaAccess
from job.plan.plan import JoinPlan
from job.writer.transactions import Identity, Transactions
from tests.polling import wait_until
from tests.unit.specs import plan

MIB = 2**20
HEADERS = [f"h{number}" for number in range(60)]


def planned(**changes: Any) -> JoinPlan:
    headers = dict.fromkeys(HEADERS, "left.campaign")
    return plan(output__headers=headers, output__key="left.ad_id", **changes)


PLAN = planned()
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
    at_least_once, exactly_once = (f"size.{name}.{limit}" for name in ("spark", "java"))
    topics, commits = [at_least_once, exactly_once], f"size.commits.{limit}"
    kafka.create_topics(topics, partitions=1, config={"max.message.bytes": str(limit)})
    kafka.create_topics([commits], partitions=1)
    servers = kafka.bootstrap_servers
    options = sink_options(PLAN, KafkaAccess(servers), limit)
    options["kafka.bootstrap.servers"] = servers

    def results_of(topic: str) -> DataFrame:
        made = planned(output__topic=topic)
        return written(results(spark, limit), made, TopicLimits(limit, 0))

    results_of(at_least_once).write.format("kafka").options(**options).save()

    transactions = Transactions(
        spark,
        Identity("java", "q", exactly_once, commits, since=0, repeats=None, fence=0),
        {"bootstrap.servers": servers},
        producer_settings(options),
        commit_interval=timedelta(),
        timeout=timedelta(minutes=1),
    )
    try:
        transactions.write_batch(results_of(exactly_once), 0, "offsets")
    finally:
        transactions.close()
    assert WRITTEN == transactions.take_delivered().results

    client = admin({"bootstrap.servers": servers})

    def ends() -> list[int]:
        return [list_offsets(client, topic, [0], LATEST)[0] for topic in topics]

    # A commit ends before the broker has written the record that ends the transaction.
    control = 1
    expected = [WRITTEN, WRITTEN + control]
    wait_until(lambda: ends() == expected, 30, f"the topics end at {expected}")
