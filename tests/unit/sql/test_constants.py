"""Constants that fail: `validate` refuses those that Spark computes while it plans the query.

tests/semantics/test_spec_differential.py compares each of these texts with Spark.
"""

import pytest

from job.errors import SpecError
from job.join_spec.expressions import SIDES, Scope, condition, expression, predicate
from job.join_spec.value_schema import value_schema
from tests.constants import COMPUTED, FILTERS, FILTERS_HIDDEN, HIDDEN
from tests.refusals import EXPRESSION_MESSAGES
from tests.semantics.sql_fuzz import COLUMNS

SCHEMA = value_schema(", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()), "schema")
SCOPE = Scope(dict.fromkeys(SIDES, SCHEMA))


@pytest.mark.parametrize("text", [text for texts in HIDDEN.values() for text in texts])
def test_constant_that_spark_does_not_compute_is_accepted(text):
    assert expression(text, SCOPE, "f")


@pytest.mark.parametrize("text", [text for texts in COMPUTED.values() for text in texts])
def test_constant_that_spark_computes_is_refused(text):
    with pytest.raises(SpecError) as refused:
        expression(text, SCOPE, "f")

    [problem] = refused.value.problems
    assert not any(message in problem.message for message in EXPRESSION_MESSAGES)


@pytest.mark.parametrize("text", FILTERS)
def test_constant_that_fails_only_in_a_filter_is_refused_there(text):
    assert expression(text, SCOPE, "f")

    with pytest.raises(SpecError, match=r"is a constant that fails|cannot be read as"):
        predicate(text, SCOPE, "f")


def test_condition_with_a_failing_constant_after_false_is_false():
    parts = condition("left.b and (false and 1/0 = 1)", SCOPE, "f").conjuncts

    assert ["FALSE"] == [part.sql for part in parts]


@pytest.mark.parametrize("text", FILTERS_HIDDEN)
def test_constant_stays_out_of_other_parts_of_a_filter(text):
    assert predicate(text, SCOPE, "f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("left.d > 'abc'", "'abc' cannot be read as DATE"),
        ("left.i in (1, 2 div 0)", "2 DIV 0 is a constant that fails"),
        ("left.i + 1 + 2147483647", "1 + 2147483647 is a constant that fails"),
        ("greatest(1, 1/0) + left.x", "1 / 0 is a constant that fails"),
        ("case left.i when 1 then 2 end = 'a'", "'a' cannot be read as BIGINT"),
        ("cast(cast('x' as timestamp) as date)", "CAST('x' AS TIMESTAMP) is a constant that fails"),
    ],
)
def test_message_names_the_part_that_fails(text, message):
    with pytest.raises(SpecError) as refused:
        expression(text, SCOPE, "f")

    assert message in refused.value.problems[0].message
