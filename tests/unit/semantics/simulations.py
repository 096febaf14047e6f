"""Builders for simulated joins: a spec, its rows, and a run of both."""

import json

from job.plan.planner import join_plan
from job.semantics.input_records import records_of_jsonl
from job.semantics.simulate import simulate
from job.spec.spec import spec_from_document
from tests.sql_worker import ROWS, SQL

T = 1_700_000_000_000


def spec(**changes):
    side = {"schema": "k INT, t TIMESTAMP, v INT, s STRING", "key": ["k"], "event_time": "t"}
    document = {
        "name": "simulated",
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "left": {"topic": "l", **side, "watermark_delay": "10 seconds"},
        "right": {"topic": "r", **side, "watermark_delay": "10 seconds"},
        "join": {"type": "left_outer", "match_window": {"before": "0 s", "after": "5 s"}},
        "output": {
            "topic": "o",
            "columns": {"k": "left.k", "v": "left.v", "rv": "right.v"},
            "delivery": "at_least_once",
        },
        "checkpoint": "./checkpoint",
        "on_bad_record": "drop",
    }
    for path, value in changes.items():
        *parents, name = path.split("__")
        target = document
        for parent in parents:
            target = target[parent]
        target[name] = value
    return document


def plan(**changes):
    return join_plan(spec_from_document(spec(**changes)), SQL, state_partitions=1)


def row(k, seconds, v=0, **more):
    return json.dumps({"k": k, "t": T + round(seconds * 1000), "v": v, **more})


def run(made, left=(), right=(), **options):
    return simulate(
        made, ROWS, records_of_jsonl(left, ROWS), records_of_jsonl(right, ROWS), **options
    )


def values(batches):
    return [[json.loads(record.value) for record in batch.output] for batch in batches]
