"""The specs of the pages that contain tests pass them."""

import re
from pathlib import Path

import pytest
import yaml

from job.plan.planner import join_plan
from job.semantics.spec_tests import SpecTest, run_spec_test
from job.spec.spec import spec_from_yaml
from tests.sql_worker import ROWS, SQL

ROOT = Path(__file__).parents[3]
# The first block is the complete spec of the README, which the others change.
NAMES = (
    "README.md",
    *("docs/patterns.md", "docs/event-time.md", "docs/cdc.md", "docs/tables.md"),
    "docs/tutorial.md",
)
PAGES = "".join((ROOT / name).read_text() for name in NAMES)
BLOCKS = [yaml.safe_load(body) for body in re.findall(r"```yaml\n(.*?)```", PAGES, re.DOTALL)]
PATTERNS = [block for block in BLOCKS if "tests" in block]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda block: block["tests"][0]["name"])
def test_pattern_passes_its_own_tests(pattern: dict[str, object]) -> None:
    spec = spec_from_yaml(yaml.safe_dump({**BLOCKS[0], **pattern}), {})
    plan = join_plan(spec, SQL, state_partitions=1)
    for test in spec.tests:
        outcome = run_spec_test(plan, ROWS, SpecTest(**test.model_dump()))
        assert outcome.passed, outcome


def test_self_join_several_topics_and_foreign_key_join_are_among_them() -> None:
    topics = [
        (
            next(left[name] for name in ("topic", "topics", "topic_pattern") if name in left),
            pattern["right"]["topic"],
        )
        for pattern in PATTERNS
        for left in [pattern["left"]]
    ]
    expected = [
        ("orders", "orders"),
        (["orders_eu", "orders_us"], "payments"),
        ("orders_.*", "payments"),
        ("orders", "payments"),
        ("impressions", "ads"),
        ("trades", "quotes"),
        ("shop_events", "payments"),
        ("orders", "customers"),
        ("loans", "books"),
        ("orders", "payments"),
        ("paid_orders", "shipments"),
        ("readings", "alarms"),
        ("meter_readings", "tariffs"),
        ("shop.public.orders", "shop.public.customers"),
        ("orders", "customers"),
        ("loans", "books"),
        ("orders", "shop.public.customers"),
        ("orders", "customers"),
        ("orders", "prices"),
        ("orders", "prices"),
        ("orders", "customers"),
        ("orders", "customers"),
    ]
    assert expected == topics
