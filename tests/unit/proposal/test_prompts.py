"""A wrong input is prompted for again, and the other inputs are kept."""

import pytest

from job.proposal.dialog import Options, proposed
from job.proposal.prompts import ProposalError, Question, answered
from tests.unit.proposal.corpus import CASES
from tests.unit.proposal.test_corpus import OBSERVER, draft


def test_every_refused_input_is_prompted_for_again_with_the_reason() -> None:
    inputs = iter(
        ["nope", "id", "id, ts", "id", "order_id", "amount", "", "ts", "left", "", "not a name"]
    )
    asked: list[tuple[str, str | None]] = []

    def prompt(question: Question) -> str:
        asked.append((question.text, question.reason))
        return next(inputs, "") or question.default or ""

    found = proposed(
        draft(CASES["orders and payments"]), Options(output="paid"), prompt, print, OBSERVER
    )
    assert ([("id", "order_id")], "shop_orders_shop_payments") == (found.keys, found.name)
    refused = [(text, reason) for text, reason in asked if reason is not None]
    expected = [
        ("Key of the left side", "unknown column nope of the left side"),
        ("Key of the right side", "expressions are paired in order"),
        ("Key of the right side", "is STRING and left.key[0] (id) is BIGINT"),
        ("Event time of the left side", "is DOUBLE and must be TIMESTAMP"),
        ("Join type", "left is not a join type"),
        ("Name of the join", "must begin with a letter"),
    ]
    for (text, reason), (asked_for, part) in zip(refused, expected, strict=True):
        assert asked_for == text
        assert part in reason


def test_default_that_is_refused_ends_the_command() -> None:
    def refuse(text: str) -> str:
        raise ProposalError(f"{text} is refused")

    with pytest.raises(ProposalError, match="a is refused"):
        answered(lambda question: str(question.default), Question("x", "--x", "a"), refuse)
