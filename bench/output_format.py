"""CPU time of the formats of results: rows per CPU-second of JSON, Avro and Protobuf.

python -m bench.output_format                          200,000 results, 5 rounds, 3 minutes
python -m bench.output_format --records 50000 --rounds 3

Runs the last step of the dataflow, output_records, as a batch on one core, on joined rows in
memory. Needs no registry.
"""

import sys
from dataclasses import replace
from functools import partial

import yaml

from bench.expressions import side_records
from bench.rounds import arguments, measure, report, spark_session
from bench.sql import SQL
from job.dataflow.joins import SparkJoin
from job.dataflow.results import output_records
from job.dataflow.sides import side_rows
from job.join_spec.spec import spec_from_yaml
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan

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
    options = arguments(
        "bench.output_format", "Measure the CPU time of the formats of results.", records="per side"
    )
    plans = {"JSON": _plan(), "Avro": _plan(format="avro"), "Protobuf": _plan(format="protobuf")}
    with spark_session() as spark:
        plan = plans["JSON"]
        left, right = (
            side_rows(side_records(spark, at, options.records), side, plan, None)
            for at, side in (("shown_at", plan.left), ("clicked_at", plan.right))
        )
        rows = SparkJoin().joined(left, right, plan).persist()
        results = rows.count()
        dataflows = {name: partial(output_records, rows, plan) for name, plan in plans.items()}
        rates = measure(dataflows, rows=results, rounds=options.rounds)
    sys.stdout.write(report(rates, subject="format", unit="results"))
    return 0


def _plan(**output: str) -> JoinPlan:
    document = {**_SPEC, "output": {"topic": "joined", "columns": _COLUMNS, **output}}
    if output:
        document["schema_registry"] = {"url": "http://localhost:8081"}
    plan = join_plan(spec_from_yaml(yaml.safe_dump(document), {}), SQL, state_partitions=1)
    schema = plan.output.schema
    if schema is None:
        return plan
    return replace(plan, output=replace(plan.output, schema=replace(schema, id=_SCHEMA_ID)))


if __name__ == "__main__":
    sys.exit(main())
