"""CPU time of the job's expressions: rows per CPU-second of joins without and with casts.

python -m bench.expressions                          200,000 records per side, 5 rounds, 2 minutes
python -m bench.expressions --records 50000 --rounds 3

Runs the dataflow of the job as a batch on one core, without Kafka and state: a difference between
two specs is due to their expressions. To compare two versions, run the program in
both on the same machine.
"""

import sys
from functools import partial

import yaml
from pyspark.sql import DataFrame, SparkSession

from bench.load import FIRST_EVENT_MS
from bench.rounds import arguments, measure, report, spark_session
from bench.sql import SQL
from job.dataflow.dataflow import dataflow
from job.dataflow.joins import SparkJoin
from job.join_spec.sides import SIDES
from job.join_spec.spec import spec_from_yaml
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan

_CAMPAIGNS = 1_000
# Partitions of the topics: the job observes the newest event time of each.
_PARTITIONS = 4

_COLUMNS = {"ad_id": "left.ad_id", "cost": "left.cost", "user": "right.user"}
_CAST_COLUMNS = {**_COLUMNS, "number": "cast(left.campaign AS INT)"}
_FILTER = "cast(campaign AS INT) >= 0"
_OUTPUT_FILTER = "cast(left.campaign AS INT) >= 0"
_KEYS = ("cast(campaign AS INT)", f"cast(ad_id % {_CAMPAIGNS} AS INT)")


def plans() -> dict[str, JoinPlan]:
    """The measured specs by name: each has a cast that can fail in one more field."""
    return {
        "no cast": _plan(_COLUMNS),
        "casts in columns": _plan(_CAST_COLUMNS),
        "and in filters": _plan(_CAST_COLUMNS, filters=True),
        "and in keys": _plan(_CAST_COLUMNS, filters=True, keys=True),
    }


def _plan(columns: dict[str, str], *, filters: bool = False, keys: bool = False) -> JoinPlan:
    left_key, right_key = ([key] if keys else [] for key in _KEYS)
    document = {
        "name": "expressions",
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "left": {
            "topic": "impressions",
            "schema": "ad_id BIGINT, shown_at TIMESTAMP, campaign STRING, cost DOUBLE",
            "key": ["ad_id", *left_key],
            "event_time": "shown_at",
            "watermark_delay": "10 seconds",
            **({"filter": _FILTER} if filters else {}),
        },
        "right": {
            "topic": "clicks",
            "schema": "ad_id BIGINT, clicked_at TIMESTAMP, user STRING",
            "key": ["ad_id", *right_key],
            "event_time": "clicked_at",
            "watermark_delay": "10 seconds",
        },
        "join": {
            "type": "inner",
            "match_window": {"before": "10 seconds", "after": "10 seconds"},
        },
        "output": {
            "topic": "joined",
            "columns": columns,
            "delivery": "exactly_once",
            **({"filter": _OUTPUT_FILTER} if filters else {}),
        },
        "checkpoint": "/checkpoint",
        "on_bad_record": "drop",
    }
    plan = join_plan(spec_from_yaml(yaml.safe_dump(document), {}), SQL, state_partitions=1)
    return plan.reading(dict.fromkeys(SIDES, (_PARTITIONS,)))


def main() -> int:
    options = arguments(
        "bench.expressions",
        "Measure the CPU time of the job's expressions.",
        records="per side",
    )
    with spark_session() as spark:
        left = side_records(spark, "shown_at", options.records)
        right = side_records(spark, "clicked_at", options.records)
        dataflows = {
            name: partial(dataflow, left, right, plan, SparkJoin())
            for name, plan in plans().items()
        }
        rates = measure(dataflows, rows=2 * options.records, rounds=options.rounds)
    sys.stdout.write(report(rates, subject="spec", unit="rows"))
    return 0


def side_records(spark: SparkSession, event_time: str, count: int) -> DataFrame:
    """Records as Spark's Kafka source reads them, in memory. Row n of both sides is a pair."""
    value = (
        f"concat('{{\"ad_id\":', id, ',\"{event_time}\":', {FIRST_EVENT_MS} + id, "
        f'\',"campaign":"\', id % {_CAMPAIGNS}, \'","cost":\', id % 7, '
        "',\"user\":\"u-', id, '\"}')"
    )
    records = spark.range(count, numPartitions=1).selectExpr(
        "cast(null AS BINARY) AS key",
        f"cast({value} AS BINARY) AS value",
        f"cast(id % {_PARTITIONS} AS INT) AS partition",
        "id AS offset",
        f"timestamp_millis({FIRST_EVENT_MS}) AS timestamp",
    )
    records.persist().count()
    return records


if __name__ == "__main__":
    sys.exit(main())
