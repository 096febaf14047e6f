"""Types and columns by Spark's grammar."""

import pytest

from job.errors import SpecError
from job.evaluation.sql_types import decimal_type
from job.join_spec.expressions import Expression, Scope, expression
from job.join_spec.value_schema import value_schema

SCOPE = Scope(
    {"left": value_schema("p DECIMAL(10, 2), s STRING, b BOOLEAN, t TIMESTAMP", "schema")}
)


def of(text: str) -> Expression:
    return expression(text, SCOPE, "field")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("INT8", "INT8 is not a type of Spark: write BIGINT"),
        ("TEXT", "TEXT is not a type of Spark: write STRING"),
        ("NUMBER", "NUMBER is not a type of Spark: write DECIMAL(10, 2)"),
        ("DOUBLE PRECISION", "DOUBLE PRECISION is not a type of Spark: remove PRECISION"),
        ("INT[]", "INT[] is not a type of Spark: write ARRAY<INT>"),
        ("ARRAY(INT)", "write e.g. ARRAY<INT>"),
        ("INT,", "no column after a comma"),
        ("STRUCT<x: INT,>", "no column after a comma"),
        ("VARCHAR(5)", "VARCHAR is not a type that a spec may use: write STRING"),
        ("TIME", "TIME is not a type that a spec may use: write STRING"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ is not a type that a spec may use: write TIMESTAMP"),
        ("STRING COLLATE x", "STRING COLLATE is not a type that a spec may use: write STRING"),
    ],
)
def test_types_that_are_none_of_spark_are_refused_by_name(kind: str, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        value_schema(f"a {kind}", "schema")

    assert message in refused.value.problems[0].message


@pytest.mark.parametrize("kind", ["int8", "text", "bool", "number", "array(string)"])
def test_casts_to_types_that_are_none_of_spark_are_refused(kind: str) -> None:
    with pytest.raises(SpecError):
        of(f"cast(left.s as {kind})")


def test_collation_is_refused_by_its_name() -> None:
    with pytest.raises(SpecError, match="STRING COLLATE is not a type that a spec may use"):
        of("cast(left.s as string collate UNICODE)")


def test_words_of_sql_are_names_of_columns() -> None:
    schema = value_schema("like INT, select STRING, a STRUCT<unique: INT>", "schema")

    assert ("like", "select", "a") == schema.names


@pytest.mark.parametrize("text", ["left.p / 2L", "left.p / 2S", "left.p / 2", "left.p / -2L"])
def test_integer_with_a_suffix_is_a_literal_in_decimal_arithmetic(text: str) -> None:
    assert decimal_type(14, 6) == of(text).type
    assert "CAST" not in of(text).sql


@pytest.mark.parametrize(
    "text", ["cast(upper(left.b or true) as int)", "trim(left.b and (not true)) / left.p"]
)
def test_constants_that_or_true_makes_are_computed(text: str) -> None:
    with pytest.raises(SpecError):
        of(text)
