"""The choice of the operator of the join, and what a checkpoint makes of it."""

from typing import Any

import pytest

from job.plan.fingerprint import Change, fingerprint, incompatible_changes, recorded_plan
from job.plan.join_operator import DEFAULT
from job.spec.join_conditions import JoinOperator
from tests.unit.specs import plan, problems

PROCESSOR: dict[str, Any] = {"join__operator": "streamjoin"}


def test_operator_of_a_new_checkpoint_is_the_default() -> None:
    assert DEFAULT is plan().operator
    assert JoinOperator.STREAMJOIN is plan(engine="real_time").operator


def test_checkpoint_keeps_its_operator_if_the_spec_names_none() -> None:
    frozen = fingerprint(plan(**PROCESSOR))

    assert JoinOperator.STREAMJOIN is recorded_plan(plan(), frozen).operator
    assert [] == incompatible_changes(plan(), frozen)


def test_another_operator_than_that_of_the_checkpoint_is_refused() -> None:
    differences = incompatible_changes(plan(join__operator="spark"), fingerprint(plan(**PROCESSOR)))

    assert [Change("join.operator", "streamjoin", "spark")] == differences


def test_checkpoint_without_an_operator_has_that_of_spark() -> None:
    frozen = {name: text for name, text in fingerprint(plan()).items() if name != "join.operator"}

    assert [] == incompatible_changes(plan(), frozen)
    assert ["join.operator"] == [
        each.field for each in incompatible_changes(plan(**PROCESSOR), frozen)
    ]


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"left__deduplicate": {"by": ["user"], "within": "1 hour"}}, "left.deduplicate"),
        ({"join__unbounded_state": True, "join__match_window": None}, "join.unbounded_state"),
    ],
)
def test_what_the_processor_does_not_run_is_refused_with_the_remedy(
    part: dict[str, Any], field: str
) -> None:
    assert "use join.operator spark" in problems(**PROCESSOR, **part)[field]


def test_operator_of_spark_is_refused_in_real_time() -> None:
    found = problems(engine="real_time", join__operator="spark")

    assert "does not run in real-time mode" in found["join.operator"]
