"""The Java writer of transactions, without a broker: writer/transactions.py."""

from datetime import timedelta
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from job.spark.java_classes import java_class
from job.writer.transactions import COLUMNS, Identity, Transactions

_TYPES = ("STRING", "BINARY", "BINARY", "ARRAY<STRUCT<key: STRING, value: BINARY>>", "STRING",
          "BIGINT", "INT")  # fmt: skip
_NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


def test_task_that_begins_after_its_run_has_ended_opens_no_transaction(spark: SparkSession) -> None:
    """With a producer it would fence the next run."""
    identity = Identity("ended", "q", "out", "commits", since=0, repeats=None, fence=0)
    transactions = Transactions(
        *(spark, identity, _NOWHERE, {}),
        commit_interval=timedelta(milliseconds=50),
        timeout=timedelta(minutes=5),
    )
    columns = (f"{name} {kind}" for name, kind in zip(COLUMNS, _TYPES, strict=True))
    row = ("out", None, b"{}", [], "id", None, None)
    records = spark.createDataFrame([row], ", ".join(columns))
    transactions.close()

    with pytest.raises(Py4JJavaError) as failure:
        transactions.write_batch(records, 0, "offsets")
    assert "the run of this task has ended" in str(failure.value)


def test_connection_that_is_closed_without_a_lost_request_leaves_no_doubt(
    spark: SparkSession,
) -> None:
    """Kafka's clients and brokers close idle connections."""
    jvm: Any = spark._jvm
    kafka = jvm.org.apache.kafka.common.metrics
    metrics = kafka.Metrics()

    def counted(name: str) -> Any:
        sensor = metrics.sensor(name)
        sensor.add(metrics.metricName(name, "producer-metrics"), kafka.stats.CumulativeCount())
        return sensor

    closed, sent, answered = map(
        counted, ("connection-close-total", "request-total", "response-total")
    )
    requests = java_class(spark, "SentRequests")(metrics.metrics())

    def is_doubtful(*events: Any) -> bool:
        requests.begin()
        for event in events:
            event.record()
        return bool(requests.isSentTwice())

    assert not is_doubtful(sent, answered)
    assert not is_doubtful(sent, closed, answered)
    assert not is_doubtful(sent)  # a request for metadata
    assert not is_doubtful(answered, closed)
    assert is_doubtful(sent, closed, sent, answered)
