"""SQL expressions of a spec: accepted, refused, and the SQL that Spark receives."""

import pytest

from job.errors import SpecError
from job.spec.expressions import Scope, expression, predicate
from job.spec.value_schema import value_schema
from tests.sql_worker import SQL

LEFT = value_schema(
    "ad_id BIGINT, shown_at TIMESTAMP, cost DOUBLE, place STRUCT<city: STRING>", "left.schema", SQL
)
RIGHT = value_schema("ad_id BIGINT, clicked_at TIMESTAMP, user STRING", "right.schema", SQL)
BOTH = Scope(SQL, {"left": LEFT, "right": RIGHT})


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
        ("left(right.user, 2)", "left(`right_user`, 2)"),
        ("left.ad_id -- a comment", "`left_ad_id`"),
        ("right.user = 'O''Brien'", "`right_user` = 'O''Brien'"),
        ("'left.ad_id' || right.user", "'left.ad_id' || `right_user`"),
        ("struct(left.cost, left.place.city)", None),
        (
            "CASE left.ad_id WHEN 1 THEN 'x' WHEN left.ad_id THEN 'y' END",
            "CASE `left_ad_id` WHEN 1 THEN 'x' WHEN `left_ad_id` THEN 'y' END",
        ),
        ("right.user LIKE ANY ('a%', right.user)", "`right_user` LIKE ANY ('a%', `right_user`)"),
        ("left.shown_at > timestamp'epoch'", "`left_shown_at` > timestamp'epoch'"),
        # Their samples would be too large for a check of the constant arguments.
        ("lpad(right.user, 300000000, ' ')", None),
        (
            "exists(sequence(left.shown_at, timestamp'2030-01-01', interval 1 second), x -> true)",
            None,
        ),
    ],
)
def test_spark_receives_the_text_with_the_names_of_the_dataflow(text: str, sql: str | None) -> None:
    accepted = expression(text, BOTH, "f").sql
    assert sql in {None, accepted}


def test_struct_names_its_fields_as_the_spec_does() -> None:
    kind = expression("struct(left.cost, left.place.city, 1)", BOTH, "f").type

    assert ["cost", "city", "col3"] == [name for name, _ in kind.fields]


def test_spellings_of_an_expression_have_one_canonical_text() -> None:
    one, other = (
        expression(text, BOTH, "f").canonical
        for text in ("UCASE(right.user)", "upper( RIGHT.USER)")
    )
    lambdas = [
        expression(f"transform(array(1), (x, y) -> {body})", BOTH, "f").canonical
        for body in ("x - y", "y - x")
    ]

    assert one == other
    assert 2 == len(set(lambdas))


@pytest.mark.parametrize(
    "text",
    [
        "left.ad_id = 'x'",
        "left.place > 1",
        "upper(left.place)",
        "1 / 0",
        "right.user rlike '('",
        "date_format(left.shown_at, 'bbbb')",
        "cast(left.cost as foo)",
        "no_such_function(1)",
    ],
)
def test_message_of_spark_has_the_names_of_the_spec_and_no_codes(text: str) -> None:
    message = refusal(text)

    for unwanted in ("left_", "right_", "SQLSTATE", "Project", "org.apache", "line 1"):
        assert unwanted not in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("java_method('java.lang.System', 'exit', '1')", "java_method() calls a method of the JVM"),
        ("`reflect`('a', 'b')", "reflect() calls a method of the JVM"),
        ("input_file_name()", "input_file_name() reads a file, and a record comes from Kafka"),
        (
            "sum(left.ad_id)",
            "sum() computes a value of several rows, and an expression sees one row",
        ),
        (
            "vector_sum(array(1f))",
            "vector_sum() computes a value of several rows, and an expression sees one row",
        ),
        ("to_json(struct(*))", "contains *, which a spec may not use"),
        (
            "IDENTIFIER('left_' || 'ad_id')",
            "contains IDENTIFIER('left_' || 'ad_id'), which a spec may not use",
        ),
        (
            "IDENTIFIER('re' || 'flect')('java.Gc')",
            "contains IDENTIFIER('re' || 'flect')('java.Gc'), which a spec may not use",
        ),
        ("left.ad_id = :id", "contains :id, which a spec may not use"),
        (
            "from_json(right.user, 'a STRING COLLATE UTF8_LCASE').a",
            "from_json(right.user).`a` has a type that a spec may not use",
        ),
        (
            "transform(array(1), left_cost -> left_cost + left.cost)",
            "has a lambda variable with the name of a side in it: rename it",
        ),
        (
            f"cast(NULL AS {'ARRAY<' * 110}INT{'>' * 110})",
            "has a type that is nested too deep",
        ),
        (
            "explode(array(1))",
            (
                "explode() creates rows, and an expression gives one value: to match the elements "
                "of an array, write array_contains(left.ids, right.id) in join.condition"
            ),
        ),
        (
            "nope(1)",
            "nope() is not a function of Spark: see https://spark.apache.org/docs/latest/api/sql",
        ),
        ("lenght('a')", "lenght() is not a function of Spark: did you mean length()?"),
    ],
)
def test_function_that_a_spec_may_not_use_is_refused_with_the_reason(
    text: str, message: str
) -> None:
    assert message == refusal(text)


PARSES_NO = "is invalid: Spark cannot parse"
QUOTED = r"\'q\'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("left.cost >", "has a syntax error at end of input"),
        ("length(right.user, 1)", "length() takes 1 arguments, but has 2"),
        ("substring(right.user) = 'a'", "substring() takes 2 or 3 arguments, but has 1"),
        ("cast(left.cost as foo)", "FOO is not a type of Spark: write BOOLEAN, TINYINT, "),
        ("1 / 0", "a constant divides by zero: correct it, or use try_divide, which returns NULL"),
        ("2147483647 + 1", "a constant overflows: correct it, or use a function such as try_add"),
        ("left.ad_id = 'x'", "'x' (STRING) is not a value of BIGINT: correct it, or use try_cast"),
        ("cast(99999999999 as int)", "99999999999L is too large for INT: correct it, or use try_"),
        ("DATE '2020-13-01'", "'2020-13-01' is not a value of DATE: correct it"),
        ("right.user rlike '('", "the regular expression '(' of rlike() is invalid"),
        (
            "split(right.user, '[')[0]",
            "split(right.user, '[', -1) has a pattern that is no regular",
        ),
        ("date_format(left.shown_at, 'yyyyyyy')", "the format 'yyyyyyy' is invalid: see https://"),
        ("date_format(left.shown_at, 'bbb')", "the format 'bbb' is invalid: see https://spark.ap"),
        (
            "to_timestamp(right.user, 'EEE, dd \\'q\\'')",
            f"the format 'EEE, dd {QUOTED}' {PARSES_NO} E. ",
        ),
        (
            "to_date(right.user, 'EEE q')",
            f"the format EEE q {PARSES_NO} E and q. Leave it out of the",
        ),
        ("to_timestamp(right.user, 'E YYYY')", "the format 'E YYYY' is invalid: see https://spark"),
        ("right.user.x", "right.user is STRING, which has no fields"),
        ("named_struct('a', 1).b", "unknown field b: the fields are a"),
        ("left.ad_id + true", "(left.ad_id + true) cannot be computed from BIGINT and BOOLEAN: "),
        ("coalesce(left.ad_id, array(1))", "coalesce(left.ad_id, array(1)) needs values of one t"),
        ("not left.cost", "left.cost in (NOT left.cost) is DOUBLE and must be BOOLEAN: cast it"),
        ("cast(array(1) as int)", "ARRAY<INT> cannot be cast to INT"),
        ("cast(DATE '2020-01-01' as int)", "DATE cannot be cast to INT: use UNIX_DATE"),
    ],
)
def test_error_of_spark_is_explained(text: str, message: str) -> None:
    assert refusal(text).startswith(message), refusal(text)


@pytest.mark.parametrize("name", ["rand", "now", "uuid", "current_timestamp", "current_date"])
def test_nondeterministic_function_is_refused(name: str) -> None:
    assert f"{name} is not deterministic" in refusal(f"{name}() is null").replace("()", "")


@pytest.mark.parametrize(
    "literal",
    ["timestamp'now'", "DATE 'today'", "timestamp\n' Tomorrow UTC'", "date'\\u0079esterday'",
     "timestamp_ltz r'now'"],
)  # fmt: skip
def test_literal_with_the_current_time_is_refused(literal: str) -> None:
    assert "is not deterministic: it reads the clock" in refusal(f"left.shown_at > {literal}")


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


def test_unknown_column_is_refused_with_the_known_columns() -> None:
    assert "unknown column nope of the right side: it has ad_id, clicked_at, user" == refusal(
        "right.nope"
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("right.clickd_at", "clicked_at"),
        ("shownat", "left.shown_at"),
        ("clickedat", "right.clicked_at"),
    ],
)
def test_unknown_column_is_refused_with_the_closest_one(text: str, meant: str) -> None:
    assert refusal(text).endswith(f"; did you mean {meant}?")


def test_name_needs_a_side_if_both_are_in_scope() -> None:
    assert refusal("user").startswith("unknown column user: use left.ad_id, ")


def test_name_in_a_side_field_is_a_column_of_that_side() -> None:
    assert (
        "`left_cost` > 0"
        == expression("cost > 0", Scope(SQL, {"left": LEFT}, bare="left"), "f").sql
    )


def test_output_column_is_replaced_by_its_expression() -> None:
    outputs = {"city": expression("left.place.city", BOTH, "f")}
    scope = Scope(SQL, BOTH.sides, outputs=outputs)

    assert "lower((`left_place`.`city`)) = 'x'" == expression("lower(city) = 'x'", scope, "f").sql


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
        ("a INT NOT NULL", "has NOT NULL or DEFAULT: remove it"),
        ("a INT)", "is not Spark DDL"),
        ("a FOO", "is not Spark DDL"),
        ("", "unexpected empty statement"),
        ("a INTERVAL", "which no value can contain"),
        ("a INTERVAL DAY", "which no value can contain"),
        ("a VARCHAR(3)", "which a value cannot contain: use STRING"),
        ("a VARIANT", "which a value cannot contain"),
    ],
)
def test_schema_that_cannot_be_read_is_refused(ddl: str, word: str) -> None:
    with pytest.raises(SpecError, match=word):
        value_schema(ddl, "left.schema", SQL)
