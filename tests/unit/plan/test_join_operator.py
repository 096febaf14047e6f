"""The choice of the operator of the join, and what a checkpoint makes of it."""

from typing import Any

import pytest

from job.plan.fingerprint import Change, fingerprint, incompatible_changes, recorded_plan
from job.plan.join_operator import state_format
from job.spec.join_conditions import JoinOperator
from tests.unit.specs import plan, problems

PROCESSOR: dict[str, Any] = {"join__operator": "streamjoin"}


def test_operator_of_a_new_checkpoint_is_streamjoin_unless_the_spec_names_another() -> None:
    assert JoinOperator.STREAMJOIN is plan().operator
    assert JoinOperator.STREAMJOIN is plan(engine="real_time").operator
    assert JoinOperator.SPARK is plan(join__operator="spark").operator


def test_checkpoint_keeps_its_operator_if_the_spec_names_none() -> None:
    frozen = fingerprint(plan(**PROCESSOR))

    assert JoinOperator.STREAMJOIN is recorded_plan(plan(), frozen).operator
    assert [] == incompatible_changes(plan(), frozen)


def test_another_operator_than_that_of_the_checkpoint_is_refused() -> None:
    differences = incompatible_changes(plan(join__operator="spark"), fingerprint(plan(**PROCESSOR)))

    assert [Change("join.operator", "streamjoin", "spark")] == differences


def test_checkpoint_without_an_operator_has_that_of_spark() -> None:
    of_spark = fingerprint(plan(join__operator="spark"))
    frozen = {name: text for name, text in of_spark.items() if name != "join.operator"}

    assert [] == incompatible_changes(plan(), frozen)
    assert "join.operator" in {
        each.field for each in incompatible_changes(plan(**PROCESSOR), frozen)
    }


def test_operator_of_spark_drops_no_duplicates() -> None:
    deduplicate = {"by": ["ad_id"], "within": "1 hour"}
    found = problems(join__operator="spark", left__deduplicate=deduplicate)

    assert "needs join.operator streamjoin" in found["left.deduplicate"]


def test_slots_of_ids_are_part_of_the_state_format() -> None:
    deduplicate = {"by": ["ad_id"], "within": "1 hour"}

    assert ", ids of right in slots of 30 minutes" in state_format(
        plan(right__deduplicate=deduplicate)
    )


def test_pick_needs_both_ends_of_the_window() -> None:
    found = problems(
        join={
            "type": "inner",
            "unbounded_state": True,
            "match_window": {"after": "1 hour"},
            "pick": "latest",
        }
    )

    assert "wait until the match window has passed" in found["join.unbounded_state"]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (None, "left and right in 256 slots"),
        ({"after": "1 hour"}, "right in 256 slots, slots of 15 minutes"),
        ({"before": "1 hour"}, "left in 256 slots, slots of 15 minutes"),
    ],
)
def test_rows_that_never_expire_are_in_slots_by_key(
    window: dict[str, str] | None, expected: str
) -> None:
    made = plan(**PROCESSOR, join__unbounded_state=True, join__match_window=window)

    assert expected == state_format(made)


def test_operator_of_spark_is_refused_in_real_time() -> None:
    found = problems(engine="real_time", join__operator="spark")

    assert "does not run in real-time mode" in found["join.operator"]
