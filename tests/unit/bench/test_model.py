"""The model that `plan` estimates by, compared with the runs it was fitted to."""

import pytest

from bench.model import Constant, benchmark_plan, constants

CONSTANTS = constants()


@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda constant: constant.name)
def test_constant_follows_from_the_runs(constant: Constant) -> None:
    assert constant.fitted == pytest.approx(constant.modelled, rel=0.05)


@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda constant: constant.name)
def test_no_run_is_further_from_the_model_than_its_stated_error(constant: Constant) -> None:
    assert [] == constant.beyond


def test_run_beyond_the_spread_is_named() -> None:
    assert ["far"] == Constant("x", 1.0, 2.0, {"near": 1.9, "far": 0.4}).beyond


def test_both_sides_of_the_benchmark_hold_rows_of_the_same_width() -> None:
    plan = benchmark_plan()

    assert [column.type for column in plan.left.kept_columns] == [
        column.type for column in plan.right.kept_columns
    ]
