"""Options and inputs take what a spec takes."""

from dataclasses import replace

import pytest

from job.errors import SpecError
from job.proposal.chosen import parts_of
from job.proposal.dialog import Options
from job.proposal.prompts import ProposalError
from job.proposal.spec_text import spec_text
from job.semantics.simulate import simulate
from tests.sql_worker import ROWS, SQL
from tests.unit.proposal.corpus import CASES
from tests.unit.proposal.test_corpus import OBSERVER, proposal_of

RECORD_KEYS = "record keys are the key of values without ids"
PAIR = "columns that identify a row only together"
FLAT = "orders and payments"


@pytest.mark.parametrize(
    ("case", "options", "left", "right"),
    [
        ("nested field", Options(left_key="user.id"), "user.id", "user.id"),
        (
            "number and text", Options(left_key="order_id"),
            "order_id", "try_cast(order_id AS BIGINT)",
        ),
        (
            "number and text", Options(right_key="lower(order_id)"),
            "cast(order_id AS STRING)", "lower(order_id)",
        ),
        (RECORD_KEYS, Options(right_key="record_key"), "record_key", "record_key"),
        (PAIR, Options(left_key="region,no"), "region, no", "region, no"),
        (
            "columns of few values", Options(left_key="country", right_key="left(country, 2)"),
            "country", "left(country, 2)",
        ),
        (FLAT, Options(left_event_time="record_timestamp"), "id", "order_id"),
    ],
)  # fmt: skip
def test_other_side_is_proposed_for_an_expression(
    case: str, options: Options, left: str, right: str
) -> None:
    found = proposal_of(CASES[case], options, [])
    keys = [", ".join(pair[side] for pair in found.keys) for side in (0, 1)]
    assert [left, right] == keys
    topics = CASES[case].left.records, CASES[case].right.records
    assert any(batch.output for batch in simulate(OBSERVER.plan(found), ROWS, *topics))
    if options.left_event_time:
        assert f"event_time: {options.left_event_time}" in spec_text(found, SQL)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (Options(left_key="nope"), r"^left.key\[0\]: unknown column nope of the left side: it has"),
        (Options(right_key="nope + 1"), r"^right.key\[0\]: unknown column nope"),
        (Options(left_key="id", right_key="id"), r"right.key\[0\]: is STRING and left.key\[0\] "),
        (Options(left_event_time="amount"), "^left.event_time: is DOUBLE and must be TIMESTAMP"),
        (Options(right_event_time="nope"), "^right.event_time: unknown column"),
    ],
)  # fmt: skip
def test_problem_of_an_option_is_the_one_of_the_spec(options: Options, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        proposal_of(CASES[FLAT], options, [])


def test_no_key_is_proposed_if_no_records_that_share_a_value_are_readable() -> None:
    time = "try_to_timestamp(cast(id AS STRING), 'yyyy-MM')"
    message = (
        "no key is proposed: no readable records share a value of id = order_id: the left event "
        f"time {time} reads 0 of 20 records and the right event time ts reads 20 of 20 records"
    )
    options = Options(left_event_time=time)
    with pytest.raises(ProposalError) as error:
        proposal_of(CASES[FLAT], options, [])
    assert message in str(error.value)
    chosen = replace(options, left_key="id", right_key="order_id")
    assert [("id", "order_id")] == proposal_of(CASES[FLAT], chosen, []).keys


def test_keys_of_different_lengths_are_refused() -> None:
    with pytest.raises(ProposalError, match="left key has 2 expressions and the right key 1"):
        proposal_of(CASES[FLAT], Options(left_key="id, amount", right_key="order_id"), [])


def test_commas_separate_expressions_and_arguments() -> None:
    text = "id, lpad(cast(sku AS STRING), 6, '0'),concat(a, ',')"
    assert ["id", "lpad(cast(sku AS STRING), 6, '0')", "concat(a, ',')"] == parts_of(text, SQL)
    assert ["id", "sum(x"] == parts_of("id, sum(x", SQL)
