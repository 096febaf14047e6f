"""The SQL that judges a record, as text. What it does is tested on Spark, in tests/semantics."""

import re
from dataclasses import replace

import pytest

from job.formats.schemas import OF_A_REGISTRY
from job.plan import record_sql
from job.plan.side_plan import SidePlan
from job.protocol.reasons import REASONS
from job.spec.value_format import Format
from tests.unit.specs import plan

# Judged in Python, behind DECODED.reason.
_OF_THE_DECODER = {Format.AVRO: OF_A_REGISTRY, Format.PROTOBUF: OF_A_REGISTRY}


def given(side: SidePlan) -> set[str]:
    """The reasons that the SQL mentions."""
    text = " ".join(part for step in record_sql.steps(side) for part in step)
    return set(re.findall(r"'([a-z_]+)'", text)) & set(REASONS)


@pytest.mark.parametrize("form", Format)
def test_every_reason_that_a_record_can_get_is_counted_and_no_other(form: Format) -> None:
    side = replace(plan().left, format=form)

    assert given(side) | _OF_THE_DECODER.get(form, set()) == set(record_sql.reasons(side))


def test_each_reason_can_be_got_in_some_format() -> None:
    failing = plan(left__filter="cast(campaign as int) > 0").left
    sides = [replace(failing, format=form) for form in Format]

    assert set(REASONS) == {reason for side in sides for reason in record_sql.reasons(side)}
