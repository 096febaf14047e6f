"""SQL expressions of a spec: accepted, refused, and the SQL that Spark receives."""

import sys

import pytest

from job.errors import SpecError
from job.join_spec.expressions import Scope, expression, predicate
from job.join_spec.value_schema import value_schema

LEFT = value_schema(
    "ad_id BIGINT, shown_at TIMESTAMP, cost DOUBLE, place STRUCT<city: STRING>", "left.schema"
)
RIGHT = value_schema("ad_id BIGINT, clicked_at TIMESTAMP, user STRING", "right.schema")
BOTH = Scope({"left": LEFT, "right": RIGHT})


def refusal(text: str, scope: Scope = BOTH) -> str:
    with pytest.raises(SpecError) as refused:
        expression(text, scope, "f")
    [problem] = refused.value.problems
    assert ("f", text) == (problem.field, problem.value)
    return problem.message


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("left.ad_id + 1", "`left_ad_id` + 1"),
        ("LEFT.AD_ID", "`left_ad_id`"),
        ("right.user <> 'bot'", "`right_user` <> 'bot'"),
        ("left.place.city", "`left_place`.`city`"),
        ("left(right.user, 2)", "LEFT(`right_user`, 2)"),
        ("left.shown_at + interval 10 seconds", "`left_shown_at` + INTERVAL '10' SECONDS"),
        ("left.ad_id <=> right.ad_id", "`left_ad_id` IS NOT DISTINCT FROM `right_ad_id`"),
        ("cast(left.ad_id as string)", "CAST(`left_ad_id` AS STRING)"),
        ("left.ad_id -- a comment", "`left_ad_id`"),
        ("right.user = 'O''Brien'", r"`right_user` = 'O\'Brien'"),
        ('right.user = "O\'Brien"', r"`right_user` = 'O\'Brien'"),
        (r"right.user = r'\d' 'x'", r"`right_user` = '\\dx'"),
        (
            "left.shown_at - interval 1 day 2 hours 3 minutes",
            "`left_shown_at` - (INTERVAL '1' DAY + (INTERVAL '2' HOURS + INTERVAL '3' MINUTES))",
        ),
        ("not left.ad_id = 1 and left.cost > -1 * 2 + 3", None),
        ("left.ad_id between 1 and 2 + 3 or right.user not like 'a%'", None),
    ],
)
def test_spark_receives_the_checked_expression(text: str, sql: str | None) -> None:
    """`sql` None: only that the expression is accepted."""
    accepted = expression(text, BOTH, "f").sql
    assert sql in {None, accepted}


@pytest.mark.parametrize(
    "text",
    [
        "true = left.ad_id < 1",
        "true = right.user like 'a%'",
        "true = left.ad_id in (1, 2)",
        "left.ad_id between 1 and 2 = true",
        "true = not left.ad_id = 1",
        "left.ad_id in (1) = true",
        "left.ad_id is null is null",
        "right.user || '-' || left.ad_id + 1",
    ],
)
def test_expression_that_spark_groups_in_another_way_needs_parentheses(text: str) -> None:
    assert "Spark groups" in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "java_method('java.lang.System', 'exit', '1')",
        "reflect  ('java.lang.Runtime', 'getRuntime')",
        "`reflect`('a', 'b')",
        "input_file_name()",
        "current_user()",
        "raise_error('x')",
        "sum(left.ad_id)",
        "count(*)",
        "row_number() over (partition by left.ad_id)",
        "exists(array(1), x -> x > 0)",
        "explode(array(1))",
        "from_json(right.user, 'a INT')",
    ],
)
def test_functions_outside_the_list_are_refused_by_name(text: str) -> None:
    name = text.partition("(")[0].strip().strip("`")

    assert f"{name}() is not one of the functions allowed in a spec" == refusal(text)


@pytest.mark.parametrize("name", ["rand", "now", "uuid", "current_timestamp", "current_date"])
def test_nondeterministic_function_is_refused(name: str) -> None:
    assert refusal(f"{name}() is null").startswith(f"{name}() is not deterministic")


@pytest.mark.parametrize(
    "text",
    [
        "left.ad_id in (select id from text.`/etc/hostname`)",
        "(select 1) = left.ad_id",
        "exists (select 1)",
        "left.ad_id = 1; drop table x",
        "current_date > left.shown_at",
        "current_timestamp",
        "left.ad_id as x",
        "*",
        "left.*",
        "left.ad_id =",
        "((",
        "",
    ],
)
def test_text_that_is_not_a_plain_expression_is_refused(text: str) -> None:
    refusal(text)


def test_nesting_has_a_limit() -> None:
    refusal("(" * 200 + "left.ad_id" + ")" * 200)
    refusal(" + ".join(["left.ad_id"] * 5000))


def test_time_to_check_a_sum_is_proportional_to_its_length() -> None:
    def calls(terms: int) -> int:
        """Python calls of the check."""
        count = 0

        def counted(_: object, event: str, __: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(counted)
        try:
            refusal(" + ".join(["left.ad_id"] * terms))
        finally:
            sys.setprofile(None)
        return count

    calls(200)  # imports and caches
    assert calls(400) < 2.1 * calls(200)


def test_unknown_column_is_refused_with_the_known_columns() -> None:
    assert "unknown column nope of the right side: it has ad_id, clicked_at, user" == refusal(
        "right.nope"
    )


def test_name_needs_a_side_if_both_are_in_scope() -> None:
    assert refusal("user").startswith("unknown column user: use left.ad_id, ")


def test_name_in_a_side_field_is_a_column_of_that_side() -> None:
    assert "`left_cost` > 0" == expression("cost > 0", Scope({"left": LEFT}, bare="left"), "f").sql


def test_output_column_is_replaced_by_its_expression() -> None:
    outputs = {"city": expression("left.place.city", BOTH, "f")}
    scope = Scope(BOTH.sides, outputs=outputs)

    assert "LOWER((`left_place`.`city`)) = 'x'" == expression("lower(city) = 'x'", scope, "f").sql


def test_expression_lists_its_columns() -> None:
    mentioned = expression("left.cost > 1 and right.user = 'x'", BOTH, "f")

    assert {("left", "cost"), ("right", "user")} == mentioned.columns
    assert {"left", "right"} == mentioned.sides


@pytest.mark.parametrize("text", ["left.cost + 1", "'yes'", "5"])
def test_condition_must_be_true_or_false(text: str) -> None:
    with pytest.raises(SpecError, match="is not a condition"):
        predicate(text, BOTH, "f")


@pytest.mark.parametrize(
    ("ddl", "word"),
    [
        ("a INT, A INT", "names a column twice"),
        ("a", "is not Spark DDL"),
        ("a INT NOT NULL", "has NOT NULL: remove it"),
        ("a INT)", "is not Spark DDL"),
        ("a FOO", "FOO is not a type of Spark"),
        ("", "is not Spark DDL"),
        ("a ARRAY<TIMESTAMP>", "declare it BIGINT or STRING"),
        ("a STRUCT<b: TIMESTAMP>", "declare it BIGINT or STRING"),
        ("a INTERVAL", "is not a type that a spec may use"),
    ],
)
def test_schema_that_cannot_be_read_is_refused(ddl: str, word: str) -> None:
    with pytest.raises(SpecError, match=word):
        value_schema(ddl, "left.schema")
