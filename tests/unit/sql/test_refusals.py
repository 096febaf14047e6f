"""`validate` refuses by name what tests/refusals.py lists, and docs/spec.md lists the same."""

import re
from pathlib import Path

import pytest

from job.errors import SpecError
from job.spec.expressions import Scope, expression
from job.spec.sides import SIDES
from job.spec.value_schema import value_schema
from tests.refusals import COLUMNS, REFUSALS, Refusal
from tests.sql_worker import SQL
from tests.unit.specs import plan

PAGE = Path(__file__).parents[3] / "docs" / "spec.md"


def read(refusal: Refusal) -> None:
    match refusal.kind:
        case "column":
            schema = value_schema(COLUMNS, "schema", SQL)
            expression(refusal.example, Scope(SQL, dict.fromkeys(SIDES, schema)), "field")
        case "schema":
            value_schema(refusal.example, "schema", SQL)
        case _:
            left, right = refusal.example.split(" = ")
            schema = f"at TIMESTAMP, {COLUMNS}"
            plan(
                left__schema=schema, left__key=[left], left__event_time="at",
                right__schema=schema, right__key=[right], right__event_time="at",
                output__columns={"n": "left.n"},
            )  # fmt: skip


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.example[:40])
def test_refusal_has_its_message(refusal: Refusal) -> None:
    with pytest.raises(SpecError) as refused:
        read(refusal)

    assert [refusal] == [
        other
        for other in REFUSALS
        if any(other.message in problem.message for problem in refused.value.problems)
    ]


def test_page_lists_each_refusal() -> None:
    table = PAGE.read_text().split("Spark accepts and `validate` refuses")[1]
    rows = re.findall(r"^\| (.*) \| `(.*)` \|$", table, re.MULTILINE)

    assert [(refusal.reason, refusal.message) for refusal in REFUSALS] == rows
