"""What `validate` refuses because Spark would refuse it, each with its reason; see also
tests/semantics/test_spec_differential.py, which asks Spark."""

import time

import pytest

from job.errors import SpecError
from job.join_spec.durations import duration
from job.join_spec.expressions import Scope, condition, expression, predicate
from job.join_spec.value_schema import value_schema
from tests.unit.specs import plan

SCHEMA = value_schema(
    "id BIGINT, n INT, x DOUBLE, s STRING, b BOOLEAN, at TIMESTAMP, d DATE, ar ARRAY<INT>, "
    "mp MAP<STRING, INT>, st STRUCT<x: STRUCT<y: INT>>",
    "left.schema",
)
SCOPE = Scope({"left": SCHEMA}, bare="left")


def refusal(text, parse=expression):
    with pytest.raises(SpecError) as refused:
        parse(text, SCOPE, "f")
    [problem] = refused.value.problems
    assert ("f", text) == (problem.field, problem.value)
    return problem.message


@pytest.mark.parametrize(
    "text",
    ["s", "n", "coalesce(s, 'x')", "case when b then 'a' else 'b' end", "null", "interval 1 day"],
)
def test_filter_that_is_neither_true_nor_false_is_refused(text):
    assert "is not a condition" in refusal(text, predicate)


def test_condition_may_be_null_but_nothing_else():
    assert condition("null and b", SCOPE, "f").conjuncts
    assert condition("null", SCOPE, "f").conjuncts

    assert "is not a condition: it is STRING" in refusal("s", condition)


@pytest.mark.parametrize("parse", [condition, predicate])
def test_string_operand_of_and_is_cast(parse):
    conjuncts = parse("(s and (b and date_format(at, 'yyyy'))) and n > 1", SCOPE, "f").conjuncts

    assert [
        "CAST(`left_s` AS BOOLEAN)",
        "`left_b`",
        "CAST(DATE_FORMAT(`left_at`, 'yyyy') AS BOOLEAN)",
        "`left_n` > 1",
    ] == [part.sql for part in conjuncts]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ar = 1", "which Spark does not support"),
        ("mp = mp", "does not compare values with a MAP"),
        ("not n", "n is INT"),
        ("n and true", "n is INT"),
        ("b[0]", "only an ARRAY or a MAP has an index"),
        ("size(n) = 1", "must be an ARRAY or a MAP"),
        ("st.nope", "nope is not a field"),
        ("st.x.y.z", "has no field z"),
        ("concat(ar, s)", "ar is ARRAY<INT>"),
        ("substring(s) = 'a'", "takes 2 to 3 arguments, but has 1"),
        ("hex(n, 1)", "takes 1 arguments, but has 2"),
        ("n in ()", "has an empty list"),
        ("abs.x(n)", "is not one of"),
        ("foo.abs(n)", "has a qualified name"),
        ("cast(s as geography)", "is not a type"),
        ("cast(s as json)", "is not a type"),
        ("cast(s as bigint unsigned)", "is not a type"),
        ("cast(s as decimal(50,2))", "too many digits"),
        ("cast(d as boolean)", "has no cast to BOOLEAN"),
        ("substring(str => s, pos => 1)", "names the argument str"),
    ],
)  # fmt: skip
def test_operands_that_do_not_fit_are_refused(text, reason):
    assert reason in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "date'2026-02-30'", "timestamp'abc'", "cast('abc' as int)", "1/0", "s rlike '('",
        "date_format(at, 'bbbb')", "interval 1 fortnight", "1e400", "1" * 44, "x = 'a'",
        "d in ('a', d)", "element_at(split('a', 'b'), 9)", "s like 'a\\\\b'",
        "9999999999L * 9999999999L", "n = 1/0 or true", "substring(s, 'a') = 'x' or true",
        "coalesce(null, substring(s, 'a'))", "round(null, 'a')", "greatest(null, 1/0)",
        "if(b, date'abc', d)", "null < date'abc'", "nullif(n + cast('q' as int), 1)",
        "trim(b or (1 = 1)) / n",
    ],
)  # fmt: skip
def test_constant_that_fails_is_refused(text):
    refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "false and 1/0 = 1", "if(b, 1, 1/0)", "try_divide(1, 0)", "try_cast('abc' as int)",
        "get_json_object(s, '$.a.b')", "get_json_object(s, '$[*].x')", "(" * 50 + "n" + ")" * 50,
        "abs(" * 90 + "n" + ")" * 90, " and ".join(["n > 1"] * 100), " or ".join(["b"] * 300),
        "try_element_at(ar, 1)", "try_to_timestamp(s)", "try_to_date(s, 'dd/MM/yyyy')",
        "null < substring(s, base64('('))", "abs(null) = n + 'abc'", "null in (1/0)",
        "null between 1/0 and 2", "try_add(null, n + 'abc')", "if(b, cast('abc' as int), 1)",
        "coalesce(n, null, 1/0)", "nullif(n, cast('q' as int))", "round(x, null)",
        "regexp_replace(s, 'a', 'b', null)",
        "ceil(null) = n + 'abc'", "case null when 1/0 then 1 end", "nullif(null, n + 'abc')",
        "try_add(n, 1) + try_subtract(n, 1) + try_multiply(n, 2) + try_mod(n, 2)", "n = '1'",
    ],
)  # fmt: skip
def test_what_spark_takes_is_accepted(text):
    expression(text, SCOPE, "f")


@pytest.mark.parametrize("opened", ["struct(", "(", "abs(", "case when b then ", "not ", "ar["])
def test_deep_nesting_is_refused_at_once(opened):
    closed = {"struct(": ")", "(": ")", "abs(": ")", "ar[": "]", "case when b then ": " end"}
    inner = "b" if opened == "not " else "n"
    began = time.process_time()

    with pytest.raises(SpecError, match="nest"):
        expression(opened * 600 + inner + closed.get(opened, "") * 600, SCOPE, "f")

    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "ddl",
    [
        "a DECIMAL(50,2)", "a DECIMAL(5,10)", "a DECIMAL(5,2,1)", "a DECIMAL(*)", "a BOOLEAN(1)",
        "a DOUBLE(1,2)", "a BINARY(5)", "a ARRAY", "a MAP", "a STRUCT", "a MAP<STRING>",
        "a ARRAY<INT, INT>", "`a``b` INT", "İ INT, i INT", "a BIGINT, b TIMESTAMP) AS SELECT 1 --",
        "a TINYINT UNSIGNED", "a TIME", "a STRUCT<x: INT, X: INT>",
        "a " + "ARRAY<" * 60 + "INT" + ">" * 60,
    ],
)  # fmt: skip
def test_schema_that_spark_refuses_is_refused(ddl):
    with pytest.raises(SpecError):
        value_schema(ddl, "left.schema")


def test_comment_in_a_schema_is_read():
    schema = value_schema("id BIGINT COMMENT 'it''s', b INT -- more", "f")

    assert ("id", "b") == schema.names


def test_map_of_json_has_strings_for_keys():
    with pytest.raises(SpecError, match="keys that are not strings"):
        plan(left__schema="ad_id BIGINT, shown_at TIMESTAMP, m ARRAY<MAP<INT, INT>>")


@pytest.mark.parametrize("text", ["106751992 days", "1" * 5000 + " days", "100000001 days"])
def test_duration_beyond_any_timestamp_is_refused(text):
    with pytest.raises(ValueError, match="is longer than 100,000,000 days"):
        duration(text)


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (["record_headers"], ["record_headers"], "cannot compare a MAP"),
        (["struct(record_headers)"], ["struct(record_headers)"], "cannot compare a MAP"),
        (["struct(ad_id)"], ["split(user, ',')"], "Spark cannot compare them"),
        (["ad_id + 0"], ["user"], "try_cast(user as bigint)"),
        (["1"], ["1"], "at least one equality of columns"),
        (["ad_id"], ["7"], "at least one equality of columns"),
        (["if(ad_id > 0, 1, 1)"], ["ad_id"], "at least one equality of columns"),
        (["coalesce(1, ad_id)"], ["ad_id"], "at least one equality of columns"),
    ],
)
def test_keys_that_spark_cannot_join_on_are_refused(left, right, message):
    with pytest.raises(SpecError) as refused:
        plan(left__key=left, right__key=right, output__columns={"x": "left.cost"})

    assert message in str(refused.value)


def test_constant_key_is_accepted_where_another_equality_remains():
    assert plan(left__key=["ad_id", "1"], right__key=["ad_id", "1"])
    assert plan(left__key=["1"], right__key=["1"], join={"type": "inner", "window": "1 hour"})


def test_join_of_all_rows_is_possible_as_the_message_proposes():
    assert plan(left__key=["length(campaign) * 0"], right__key=["length(user) * 0"])


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("to_date(s, 'yyyy-MM-dd')", "TO_DATE(`left_s`, 'yyyy-MM-dd')"),
        ("date_trunc(s, at)", "DATE_TRUNC(`left_s`, `left_at`)"),
        ("instr(s, 'a')", "INSTR(`left_s`, 'a')"),
        ("struct(n, st.x, 1)", "STRUCT(`left_n` AS `n`, `left_st`.`x` AS `x`, 1)"),
    ],
)
def test_spark_gets_the_functions_as_written(text, sql):
    assert sql == expression(text, SCOPE, "f").sql


def test_field_of_a_struct_has_the_name_of_its_column():
    assert "BIGINT" == str(expression("struct(struct(id)).col1.id", SCOPE, "f").type)


@pytest.mark.parametrize("text", ["n in (select x from t)", "(select 1) = n", "n in (select 1)"])
def test_subquery_is_refused_by_its_name(text):
    assert "contains a subquery" in refusal(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("d + null", "TIMESTAMP"),
        ("null - d", "INTERVAL DAY"),
        ("d - null", "INTERVAL DAY"),
        ("round(1.25, null)", "DECIMAL(2,0)"),
    ],
)
def test_type_of_an_operation_with_null_is_that_of_spark(text, kind):
    assert kind == str(expression(text, SCOPE, "f").type)
