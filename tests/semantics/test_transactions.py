"""The Java writer of transactions, without a broker: real_time/transactions.py."""

from datetime import timedelta

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from job.real_time.transactions import COLUMNS, Identity, Transactions

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
