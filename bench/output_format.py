"""CPU time of the formats of results: rows per CPU-second of JSON, Avro and Protobuf.

python -m bench.output_format                          200,000 results, 5 rounds, 3 minutes
python -m bench.output_format --records 50000 --rounds 3

Runs the last step of the dataflow, output_records, as a batch on one core, on joined rows in
memory. Needs no registry.
"""

import argparse
import os
import sys
from dataclasses import replace

import yaml

from bench.expressions import cpu_seconds, side_records, spark_session
from bench.report import format_table, machine, printed
from deploy.local.java import java_home
from job.dataflow.dataflow import joined, side_rows
from job.dataflow.results import output_records
from job.join_spec.spec import spec_from_yaml
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan

_WARM_UP_ROUNDS = 2
_SCHEMA_ID = 1
_COLUMNS = {
    "ad_id": "left.ad_id",
    "shown_at": "left.shown_at",
    "clicked_at": "right.clicked_at",
    "campaign": "left.campaign",
    "cost": "left.cost",
    "user": "right.user",
}
_SPEC = {
    "name": "formats",
    "kafka": {"bootstrap_servers": "localhost:9092"},
    "left": {
        "topic": "impressions",
        "schema": "ad_id BIGINT, shown_at TIMESTAMP, campaign STRING, cost DOUBLE",
        "key": ["ad_id"],
        "event_time": "shown_at",
        "watermark_delay": "10 seconds",
    },
    "right": {
        "topic": "clicks",
        "schema": "ad_id BIGINT, clicked_at TIMESTAMP, user STRING",
        "key": ["ad_id"],
        "event_time": "clicked_at",
        "watermark_delay": "10 seconds",
    },
    "join": {"type": "inner", "match_window": {"before": "10 seconds", "after": "10 seconds"}},
    "checkpoint": "/checkpoint",
    "on_bad_record": "drop",
}


def main() -> int:
    arguments = _arguments()
    os.environ["JAVA_HOME"] = str(java_home())
    plans = {"JSON": _plan(), "Avro": _plan(format="avro"), "Protobuf": _plan(format="protobuf")}
    spark = spark_session()
    try:
        plan = plans["JSON"]
        left = side_rows(side_records(spark, "shown_at", arguments.records), plan.left, plan, None)
        right = side_rows(
            side_records(spark, "clicked_at", arguments.records), plan.right, plan, None
        )
        rows = joined(left, right, plan).persist()
        results = rows.count()
        measured: dict[str, list[float]] = {name: [] for name in plans}
        for number in range(_WARM_UP_ROUNDS + arguments.rounds):
            for name, plan in plans.items():
                spent = cpu_seconds(output_records(rows, plan))
                if number >= _WARM_UP_ROUNDS:
                    measured[name].append(results / spent)
    finally:
        spark.stop()
    print(machine())
    print(printed(format_table(measured, "results")))
    return 0


def _plan(**output: str) -> JoinPlan:
    document = {**_SPEC, "output": {"topic": "joined", "columns": _COLUMNS, **output}}
    if output:
        document["schema_registry"] = {"url": "http://localhost:8081"}
    plan = join_plan(spec_from_yaml(yaml.safe_dump(document), {}), state_partitions=1)
    schema = plan.output.schema
    if schema is None:
        return plan
    return replace(plan, output=replace(plan.output, schema=replace(schema, id=_SCHEMA_ID)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.output_format", description="Measure the CPU time of the formats of results."
    )
    parser.add_argument("--records", type=int, default=200_000, help="per side (200,000)")
    parser.add_argument("--rounds", type=int, default=5, help="that count (5)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
