"""Small specs for tests, built from the example."""

from typing import Any

import pytest
import yaml

from job.errors import SpecError
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.spec.spec import spec_from_yaml
from tests.sql_worker import SQL

BASE: dict[str, Any] = {
    "name": "tested",
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
        "watermark_delay": "20 seconds",
    },
    "join": {"type": "inner", "match_window": {"before": "1 minute", "after": "1 hour"}},
    "output": {
        "topic": "attributed",
        "columns": {"ad_id": "left.ad_id", "cost": "left.cost", "user": "right.user"},
        "delivery": "at_least_once",
    },
    "checkpoint": "/checkpoints/tested",
    "on_bad_record": "drop",
}


def changed(text: str, **changes: Any) -> str:
    """The YAML in `text` with fields or `part__field` replaced; None removes the field."""
    document = yaml.safe_load(text)
    for name, value in changes.items():
        *path, field = name.split("__")
        target = document
        for part in path:
            target = target[part]
        if value is None:
            del target[field]
        else:
            target[field] = value
    return yaml.safe_dump(document, sort_keys=False)


def spec_yaml(**changes: Any) -> str:
    return changed(yaml.safe_dump(BASE), **changes)


def plan(**changes: Any) -> JoinPlan:
    return join_plan(spec_from_yaml(spec_yaml(**changes), {}), SQL, state_partitions=2)


def problems(**changes: Any) -> dict[str, str]:
    """The message of each field that the plan refuses."""
    with pytest.raises(SpecError) as refused:
        plan(**changes)
    return {problem.field: problem.message for problem in refused.value.problems}
