"""CPU time of the job's expressions: rows per CPU-second of joins without and with casts.

python -m bench.expressions                          200,000 records per side, 5 rounds, 2 minutes
python -m bench.expressions --records 50000 --rounds 3

Runs the dataflow of the job as a batch on one core, without Kafka and state: a difference between
two specs is due to their expressions. All specs run in turn in each round; the first rounds warm up
the JVM and do not count. To compare two versions, run the program in both on the same machine.
"""

import argparse
import os
import statistics
import sys

import psutil
import yaml
from pyspark.sql import DataFrame, SparkSession
from rich.box import MARKDOWN
from rich.table import Table

from bench.load import FIRST_EVENT_MS
from bench.processes import tree_usage
from bench.report import machine, printed
from deploy.local.jars import jar_folder
from deploy.local.java import java_home
from job.dataflow.dataflow import dataflow
from job.join_spec.sides import SIDES, Side
from job.join_spec.spec import spec_from_yaml
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.plan.tuning import CONF
from job.real_time.processor_jar import PROCESSOR_JAR

_WARM_UP_ROUNDS = 2
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
    plan = join_plan(spec_from_yaml(yaml.safe_dump(document), {}), state_partitions=1)
    return plan.reading(dict.fromkeys(SIDES, (_PARTITIONS,)))


def main() -> int:
    arguments = _arguments()
    os.environ["JAVA_HOME"] = str(java_home())
    spark = spark_session()
    try:
        sides: dict[Side, DataFrame] = {
            "left": side_records(spark, "shown_at", arguments.records),
            "right": side_records(spark, "clicked_at", arguments.records),
        }
        measured: dict[str, list[float]] = {name: [] for name in plans()}
        for number in range(_WARM_UP_ROUNDS + arguments.rounds):
            for name, plan in plans().items():
                spent = cpu_seconds(dataflow(sides["left"], sides["right"], plan))
                if number >= _WARM_UP_ROUNDS:
                    measured[name].append(2 * arguments.records / spent)
    finally:
        spark.stop()
    print(machine())
    print(printed(_table(measured)))
    return 0


def spark_session() -> SparkSession:
    conf: dict[str, bool | float | int | str | None] = {
        **CONF,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.driver.memory": "2g",
        "spark.driver.extraClassPath": str(jar_folder("spark") / PROCESSOR_JAR),
    }
    spark = SparkSession.builder.master("local[1]").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


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


def cpu_seconds(results: DataFrame) -> float:
    """User and system time of this process and its JVM while all results are computed."""
    root = psutil.Process()
    before, _ = tree_usage(root)
    results.write.format("noop").mode("overwrite").save()
    return tree_usage(root)[0] - before


def _table(measured: dict[str, list[float]]) -> Table:
    table = Table("spec", "rows per CPU-second", "lowest", "highest", "of no cast", box=MARKDOWN)
    base = statistics.median(measured["no cast"])
    for name, rates in measured.items():
        median = statistics.median(rates)
        figures = (f"{rate:,.0f}" for rate in (median, min(rates), max(rates)))
        table.add_row(name, *figures, f"{median / base:.2f}")
    return table


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.expressions", description="Measure the CPU time of the job's expressions."
    )
    parser.add_argument("--records", type=int, default=200_000, help="per side (200,000)")
    parser.add_argument("--rounds", type=int, default=5, help="that count (5)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
