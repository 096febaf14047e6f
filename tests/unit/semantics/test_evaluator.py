"""The evaluator's own rules; that its values are Spark's is asked of Spark in tests/semantics."""

import math
from decimal import Decimal

import pytest
import sqlglot
from sqlglot import exp

from job.evaluation.compiled import Compiled
from job.evaluation.evaluator import compile_expression, compile_predicate
from job.evaluation.sql_cast import float32_of
from job.evaluation.sql_nested import field
from job.evaluation.sql_types import NotExactError, SqlRuntimeError
from job.evaluation.type_trees import parse_type

TYPES = {"i": "INT", "n": "BIGINT", "x": "DOUBLE", "s": "STRING", "b": "BOOLEAN", "t": "TIMESTAMP"}
LAYOUT = {("left", name): (i, parse_type(kind)) for i, (name, kind) in enumerate(TYPES.items())}


def tree(text):
    parsed = exp.paren(sqlglot.parse_one(text, dialect="spark"))
    for column in list(parsed.find_all(exp.Column)):
        column.replace(exp.column(column.name, table="left"))
    return parsed.this


def value(text, **columns):
    return compile_expression(tree(text), LAYOUT).run([columns.get(name) for name in TYPES])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b and false", False), ("b and true", None), ("b or true", True), ("not b", None),
        ("i = i", None), ("i <=> i", True), ("i <=> 1", False), ("i is null", True),
        ("i in (1, 2)", None), ("1 in (2, i)", None), ("1 in (1, i)", True),
        ("coalesce(i, 5)", 5), ("if(b, 1, 2)", 2), ("case when b then 1 end", None),
        ("cast('12' as int) + 1", 13), ("7 div 2", 3), ("-7 % 3", -1), ("1 / 4", 0.25),
        ("1.5 + 2", Decimal("3.5")), ("try_cast('x' as int)", None),
        ("'a_c' like 'a\\\\_c'", True), ("'abc' like 'a\\\\_c'", False),
    ],
)  # fmt: skip
def test_values_where_all_columns_are_null(text, expected):
    assert expected == (None if text == "try_cast('x' as int)" else value(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lpad('ab', 4)", "  ab"),
        ("rpad('ab', 4)", "ab  "),
        ("replace('abcb', 'b')", "ac"),
    ],
)
def test_arguments_have_the_defaults_of_spark(text, expected):
    assert expected == value(text)


def test_concat_computes_all_arguments_also_after_null():
    with pytest.raises(SqlRuntimeError, match="DIVIDE_BY_ZERO"):
        value("concat(s, 1 div i)", i=0)


def test_date_trunc_to_no_unit_of_spark_is_null():
    assert value("date_trunc('FORTNIGHT', t)", t=1) is None


def test_nan_equals_itself_and_is_above_everything():
    assert value("x = x", x=math.nan)
    assert value("x > 1e308", x=math.nan)


def test_only_true_passes_a_predicate():
    passes = compile_predicate(tree("i > 1"), LAYOUT)

    assert [True, False, False] == [passes([i, *[None] * 5]) for i in (2, 1, None)]


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("i + i", "ARITHMETIC_OVERFLOW"),
        ("i / (i - i)", "DIVIDE_BY_ZERO"),
        ("i % (i - i)", "REMAINDER_BY_ZERO"),
        ("cast(n as int)", "CAST_OVERFLOW"),
        ("cast(s as int)", "CAST_INVALID_INPUT"),
        ("- i - 2", "ARITHMETIC_OVERFLOW"),
    ],
)
def test_errors_have_sparks_names(text, condition):
    with pytest.raises(SqlRuntimeError, match=condition):
        value(text, i=2**31 - 1, n=2**40, s="x")


@pytest.mark.parametrize("exponent", ["2147483648", "9" * 30, "-" + "9" * 30, "9" * 5_000])
def test_exponent_that_no_big_decimal_has_is_invalid(exponent):
    assert value("try_cast(s as decimal(5, 2))", s=f"1e{exponent}") is None


@pytest.mark.parametrize(
    ("text", "number"), [("1e-" + "9" * 30, 0.0), ("1e" + "9" * 30, math.inf), ("-1e99", -math.inf)]
)
def test_float_with_an_exponent_of_any_length_is_zero_or_infinite(text, number):
    assert number == float32_of(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("s rlike 'a'", "RLIKE"),
        ("regexp_replace(s, 'a', 'b')", "regexp_replace"),
        ("power(x, 2)", "pow"),
        ("round(x)", r"round\(\) of DOUBLE"),
        ("date_format(t, 'yyyy')", "time_to_str|date_format"),
        ("cast(x as decimal(5,2))", "cast from DOUBLE to DECIMAL"),
        ("xxhash64(i)", "xxhash64"),
        ("get_json_object(s, '$.a')", "get_json_object|json_extract"),
        ("to_date(s, 'dd/MM/yyyy')", r"to_date\(\) with a format"),
        ("i + s", r"INT \+ STRING"),
        ("1 / 0", "DIVIDE_BY_ZERO"),
        ("round(1.25, '1')", r"round\(\) of DECIMAL"),
        ("1.5 / null", "VOID"),
        ("hash(t - t)", r"hash\(\) of INTERVAL"),
    ],
)
def test_what_is_not_evaluated_exactly_is_refused_by_name(text, name):
    with pytest.raises(NotExactError, match=f"(?i){name}"):
        compile_expression(tree(text), LAYOUT)


def test_field_of_a_map_is_refused():
    pairs = Compiled(parse_type("MAP<STRING, INT>"), lambda _: ())

    with pytest.raises(NotExactError, match="the field value of MAP"):
        field(pairs, "value")
