"""Which expressions can fail on a record, and how a plan evaluates them."""

import pytest

from job.errors import SpecError
from job.spec.expressions import Scope, expression
from job.spec.value_schema import value_schema
from tests.sql_worker import SQL
from tests.unit.specs import plan

SCHEMA = value_schema(
    "k INT, n BIGINT, x DOUBLE, s STRING, d DECIMAL(6,2), w DECIMAL(38,0), t TIMESTAMP, dt DATE, "
    "m MAP<STRING, STRING>, ar ARRAY<INT>, st STRUCT<a: INT>, b BOOLEAN",
    "schema",
    SQL,
)
SCOPE = Scope(SQL, {"left": SCHEMA}, bare="left")

SAFE = """
k ~ k > 0 ~ s <> 'x' ~ k % 2 = 0 or s is null ~ lower(s) ~ coalesce(k, 0) ~ d < 1.5 ~ x * 2 ~ -x
x / 2 + k ~ concat(s, k) ~ m['a'] ~ element_at(m, 'a') ~ try_cast(s as int) ~ cast(k as bigint)
cast(k as string) ~ k in (1, 2) ~ case when k > 2 then s else 'x' end ~ year(t) ~ n = k ~ size(ar)
t > timestamp'2023-01-01 00:00:00' ~ substring(s, 1, 2) ~ st.a is null ~ s like 'a%' ~ s rlike '^a'
k between 1 and 2 ~ not b ~ if(b, s, null) ~ -1 ~ hash(k, s) ~ cast(x as double) / 2 >= 1
w = 1.5 ~ try_element_at(ar, 1) ~ try_to_date(s, 'yyyy') ~ b is true ~ hex(s)
date_trunc('HOUR', t) ~ nullif(k, 1) ~ abs(x) ~ cast(t as date) ~ round(x, 2) ~ null ~ x > k
"""
FAILING = """
cast(s as int) ~ k + 1 ~ n * 2 ~ k / n ~ k % n ~ d + 1 ~ ar[0] ~ element_at(ar, 1) ~ s = 1 ~ -k
t + interval 1 hour ~ to_date(s) ~ to_timestamp(s) ~ timestamp_millis(n) ~ cast(n as int) ~ abs(k)
date_format(t, 'yyyy') ~ regexp_extract(s, 'a', 1) ~ cast(x as decimal(5, 2)) ~ dt = t ~ s in (1)
st.a + 1 ~ x / 0 ~ k div -1 ~ round(d) ~ cast(s as boolean) ~ try_cast(k + 1 as string)
ceil(x) ~ floor(x) ~ hex(w) ~ s is true ~ try_element_at(ar, k) ~ try_element_at(ar, 0)
try_to_date(s, s) ~ try_to_timestamp(s, s)
coalesce(cast(s as int), 0) ~ year(s) ~ case when cast(s as int) > 1 then 1 end ~ s rlike lower(s)
if(b, cast('a' as int), 1) ~ if(b, cast(300 as tinyint), 1)
"""


def fails(text: str) -> bool:
    return expression(text, SCOPE, "field").can_fail


def listed(texts: str) -> list[str]:
    return [text.strip() for line in texts.strip().splitlines() for text in line.split("~")]


@pytest.mark.parametrize("text", listed(SAFE))
def test_safe_expression_is_recognized(text: str) -> None:
    assert not fails(text)


@pytest.mark.parametrize("text", listed(FAILING))
def test_failing_or_unknown_expression_can_fail(text: str) -> None:
    assert fails(text)


def test_plan_evaluates_the_parts_of_a_filter_that_cannot_fail_first() -> None:
    checks = plan(left__filter="cast(campaign as int) > 1 and cost > 0").left.checks

    assert checks.filter.safe is not None
    assert checks.filter.failing is not None
    assert "cost" in checks.filter.safe.sql
    assert "campaign" in checks.filter.failing.sql


def test_plan_splits_a_condition_by_side() -> None:
    condition = "left.cost > 1 and cast(left.campaign as int) > 1 and left.cost / right.ad_id > 1"
    made = plan(join__condition=condition)

    assert made.left.checks.condition is not None
    assert made.checks.condition is not None
    assert made.right.checks.condition is None
    assert {"right", "left"} == made.checks.condition.sides
    assert "coalesce(CASE WHEN" in made.on


def test_plan_without_failing_expressions_has_no_checks() -> None:
    made = plan(left__filter="cost > 0", output__filter="left.cost > 1")

    assert [False] * 3 == [part.checks.any for part in (made.left, made.right, made)]
    assert "try_eval" not in made.on


def test_semi_join_refuses_a_condition_that_can_fail_on_a_pair() -> None:
    with pytest.raises(SpecError, match=r"join\.condition: can fail on a pair of records"):
        plan(
            join__type="left_semi",
            join__condition="left.ad_id / right.ad_id > 1",
            output__columns={"ad_id": "left.ad_id"},
        )
