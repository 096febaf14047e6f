"""The evaluator gives the results of Spark, for each expression and row."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sqlglot import exp

from job.evaluation.evaluator import compile_expression
from job.evaluation.sql_cast import EPOCH
from job.evaluation.sql_types import NotExactError, SqlRuntimeError
from job.evaluation.type_trees import parse_type
from tests.semantics.sql_generator import COLUMNS, ROWS, expressions

LAYOUT = {
    ("left", name): (index, parse_type(kind)) for index, (name, kind) in enumerate(COLUMNS.items())
}
DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


def tree_of(text):
    tree = exp.paren(sqlglot.parse_one(text, dialect="spark"))
    for column in list(tree.find_all(exp.Column)):
        column.replace(exp.column(exp.to_identifier(column.name, quoted=True), table="left"))
    return tree.this


def env_of(row):
    return [_inner(row[name], kind) for name, kind in COLUMNS.items()]


def _inner(value, kind):
    if isinstance(value, list):
        return tuple(value)
    if value is None or kind not in {"DATE", "TIMESTAMP"}:
        return value
    if kind == "DATE":
        return (value - EPOCH.date()).days
    return (value - EPOCH) // timedelta(microseconds=1)


def seen(value):
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - EPOCH.date()).days
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(
        value, list | tuple
    ):  # PySpark returns a STRUCT as a tuple and an ARRAY as a list
        return tuple(seen(each) for each in value)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def predicted(text, rows):
    """Value or name of the error for each row. None: NotExactError."""
    try:
        compiled = compile_expression(tree_of(text), LAYOUT)
        return compiled.type, [_run(compiled, row) for row in rows]
    except NotExactError:
        return None


def _run(compiled, row):
    try:
        return seen(compiled.run(env_of(row)))
    except SqlRuntimeError as error:
        return error


def spark_rows(spark, rows, texts):
    sqls = [tree_of(text).sql(dialect="spark").replace("left.", "") for text in texts]
    frame = spark.createDataFrame([tuple(row[name] for name in COLUMNS) for row in rows], DDL)
    columns = [F.expr(sql).alias(f"c{index}") for index, sql in enumerate(sqls)]
    return frame.select(*columns)


@settings(
    max_examples=25,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(expressions(), min_size=30, max_size=30), ROWS)
def test_every_value_and_type_is_sparks(spark: SparkSession, texts, rows):
    outcomes = {text: outcome for text in texts if (outcome := predicted(text, rows))}
    fine = [
        text
        for text, (_, values) in outcomes.items()
        if not any(isinstance(value, SqlRuntimeError) for value in values)
    ]
    frame = spark_rows(spark, rows, fine)
    for index, row in enumerate(frame.collect()):
        for text, value in zip(fine, row, strict=True):
            kind, values = outcomes[text]
            assert (text, rows[index], values[index]) == (text, rows[index], seen(value))
    for text, field in zip(fine, frame.schema, strict=True):
        kind = field.dataType.simpleString().upper()
        assert (text, _family(str(outcomes[text][0]))) == (text, _family(kind))


def _family(kind):
    return "INTERVAL" if kind.startswith("INTERVAL") else kind


@settings(max_examples=40, derandomize=True, suppress_health_check=list(HealthCheck))
@given(expressions(), ROWS)
def test_every_error_is_sparks(spark: SparkSession, text, rows):
    outcome = predicted(text, rows)
    for row, value in zip(rows, outcome[1] if outcome else [], strict=False):
        if isinstance(value, SqlRuntimeError):
            with pytest.raises(PySparkException) as raised:
                spark_rows(spark, [row], [text]).collect()
            assert str(raised.value.getCondition()).startswith(value.condition)
            return


TRIED = [
    "try_add(i, j)", "try_add(i, 2147483647)", "try_subtract(y, -128)", "try_multiply(n, m)",
    "try_divide(i, j)", "try_divide(p, q)", "try_divide(x, 0)", "try_mod(i, j)", "try_mod(p, 0)",
    "try_mod(y, -1)", "try_add(p * p, p)", "try_add(t, interval 1 day)", "try_to_timestamp(s)",
    "try_to_date(s)", "try_to_date(t)", "try_element_at(r, 2)", "try_element_at(r, -1)",
    "try_element_at(r, i)", "ceil(-0.5 * y)", "ceil(q - 1)", "- cast(n as decimal(38,9))",
    "abs(cast(n as decimal(38,9)))", "cast(x as string)", "cast(f as string)",
    "struct(i, s)", "named_struct('a', i, 'b', struct(s, r))", "struct(i, s).i", "r = r",
    "struct(r, i) <=> struct(r, i)", "array_contains(r, 1)",
]  # fmt: skip


def test_functions_that_do_not_fail_and_nested_values_are_sparks(spark: SparkSession):
    values = [None, 0, 1, -1, 2, 127, -128]
    texts = ["2024-02-30", "2024", "x", "", None, "2024-1", "2024-1-1T1:2:3"]
    rows = [
        {
            **dict.fromkeys(COLUMNS),
            "i": value, "j": other, "y": value, "n": 2**63 - 1 if value == 2 else value,
            "m": other, "x": None if value is None else value * 1e7, "z": 1.5, "s": text,
            "f": None if value is None else value / 1000,
            "p": None if value is None else Decimal(value) / 4,
            "q": None if other is None else Decimal(other).scaleb(-2),
            "t": datetime(2024, 1, 31, 5, tzinfo=UTC),
            "r": None if value is None else [value, None, other][: value % 4],
        }
        for value, text in zip(values, texts, strict=True)
        for other in (None, 0, 3, 2)
    ]  # fmt: skip

    outcomes = {text: outcome for text in TRIED if (outcome := predicted(text, rows))}

    assert set() == set(TRIED) - set(outcomes)
    fine = {
        text: values
        for text, (_, values) in outcomes.items()
        if not any(isinstance(value, SqlRuntimeError) for value in values)
    }
    for index, row in enumerate(spark_rows(spark, rows, list(fine)).collect()):
        for (text, values), value in zip(fine.items(), row, strict=True):
            assert (text, rows[index], values[index]) == (text, rows[index], seen(value))
