"""Compares generated expressions in a simulation and in a query of Spark.

    python -m tests.semantics.expression_differential N [SEED]

Of N texts, a session of Spark refuses those that `validate` refuses, except those that are refused
by name. Each other one has the same type in both, and on each pair of rows the same value, or it
fails in both. The query runs generated code, as the job does.
"""

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from job.errors import SpecError
from job.plan import tuning
from job.plan.plan import guarded
from job.plan.position import position_column
from job.spark.try_eval import register_try_eval
from job.spec.expressions import Expression, Scope, expression
from job.spec.sides import SIDES
from job.spec.value_schema import value_schema
from job.sql.rows import Step
from job.sql.worker import CostError
from tests.refusals import EXPRESSION_MESSAGES
from tests.semantics.spark_analyzer import SparkAnalyzer
from tests.semantics.spark_session import start_session
from tests.semantics.sql_fuzz import COLUMNS, SqlFuzz
from tests.sql_worker import ROWS, SQL

DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

OF_EXPRESSIONS = ("spark.sql.ansi.enabled", "spark.sql.mapKeyDedupPolicy")
"""Settings of the job that change values."""

_OF_CONSTANTS = ("the regular expression ", "the format ", ": correct it")
"""Of the messages about constants that fail. Spark reads some of them with the first row, and not
those that it can leave out."""

_AT_ONCE = 25
"""Expressions of a query."""

_VALUES: dict[str, Sequence[Any]] = {
    "b": [True, False, None],
    "y": [1, -128, 127, 0],
    "h": [2, -32768, None],
    "i": [3, 0, -1, 2**31 - 1],
    "n": [4, -(2**63), 1_700_000_000_000, None],
    "f": [1.5, -0.0, "NaN", 1e30],
    "x": [2.5, 0.1, "Infinity", -1e-300, None],
    "p": [1.25, -99999999.99, 0],
    "q": [3.0000000001, None, -12345678901234567890],
    "s": ["12", "", "Straße İ 😀", "a,b", None, "2026-01-31"],
    "u": ["a", "A%", " x ", '{"k": [1, null]}'],
    "z": ["YQ==", "/wA=", ""],
    "d": ["2026-01-31", "1970-01-01", "0001-01-01", None, "9999-12-31"],
    "t": ["2026-03-29T01:30:00.123456Z", "1969-12-31T23:59:59Z", None],
    "ai": [[1, None, 3], [], [2]],
    "ar": [["b", "a"], None, ["", None]],
    "ast": [[{"k": 1}, None], [], [{"k": None}]],
    "m": [{"a": 1, "b": None}, {}, None],
    "st": [{"u": 1, "v": "x", "w": {"g": 0.5}}, {"u": None, "v": None, "w": None}],
    "sm": [{"g": {"a": 1}}, {"g": None}, None],
}
_ROWS = 9


@dataclass
class Result:
    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counted = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        return "\n".join([f"{counted}; {len(self.differences)} differences", *self.differences])


def run(spark: SparkSession, count: int, seed: int) -> Result:
    """Compares the expressions of `count` texts."""
    query = spark.newSession()
    for name, value in {
        **{name: tuning.CONF[name] for name in OF_EXPRESSIONS},
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.codegen.wholeStage": "true",
        # Would compute the rows before the query runs, without generated code.
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer."
        "ConvertToLocalRelation",
    }.items():
        query.conf.set(name, value)
    register_try_eval(query)
    result = Result()
    accepted = _accepted(SparkAnalyzer(query), seed, count, result)
    while texts := dict(islice(accepted, _AT_ONCE)):
        _compare(query, texts, result)
    return result


def _accepted(
    analyzer: SparkAnalyzer, seed: int, count: int, result: Result
) -> Iterator[tuple[str, Expression]]:
    """Texts that a spec may contain, with their expressions."""
    fuzz = SqlFuzz(seed)
    schema = value_schema(DDL, "schema", SQL)
    scope = Scope(SQL, dict.fromkeys(SIDES, schema))
    for _ in range(count):
        text = fuzz.expression()
        try:
            yield text, expression(text, scope, "column")
        except SpecError as error:
            result.counts["refused"] += 1
            message = error.problems[0].message
            is_named = any(part in message for part in (*EXPRESSION_MESSAGES, *_OF_CONSTANTS))
            if not is_named and analyzer.accepts(text):
                result.differences.append(f"{text}\n  refused: {message}; Spark accepts it")


def _compare(query: SparkSession, texts: dict[str, Expression], result: Result) -> None:
    try:
        _compare_together(query, texts, result)
    except (CostError, PySparkException) as error:  # e.g. of rpad(left.s, right.i)
        if len(texts) > 1:
            for text, accepted in texts.items():
                _compare(query, {text: accepted}, result)
        elif isinstance(error, CostError):
            result.counts["too large"] += 1
        else:
            result.differences.append(f"{next(iter(texts))}\n  accepted; Spark: {error}")


def _compare_together(query: SparkSession, texts: dict[str, Expression], result: Result) -> None:
    columns = [accepted.sql for accepted in texts.values()]
    steps = _steps(columns)
    names = [f"e{index}" for index in range(len(texts))]
    program, store = ROWS.program("left STRING, right STRING", steps, names), ROWS.store()
    try:
        simulated = ROWS.run(program, _pairs(), keep_in=store)
    finally:
        ROWS.drop(store)
    *before, last = steps
    frame = query.createDataFrame(_pairs(), "left STRING, right STRING")
    for step in before:
        frame = frame.selectExpr(*step)
    fields = frame.selectExpr(*columns).schema.fields
    of_query = [row.asDict() for row in frame.selectExpr(*last).collect()]
    for (text, accepted), found in zip(texts.items(), fields, strict=True):
        if _plain(str(accepted.type)) != _plain(kind := found.dataType.simpleString()):
            result.differences.append(f"{text}\n  is {accepted.type}; Spark: {kind}")
    for name, text in zip(names, texts, strict=True):
        own, of_spark = ([row[name] for row in rows] for rows in (simulated, of_query))
        result.counts["compared"] += 1
        result.counts["values"] += sum(value is not None for value in own)
        result.counts["failures"] += own.count(None)
        if own != of_spark:
            result.differences.append(f"{text}\n  simulated: {own}\n  query:     {of_spark}")


def _plain(kind: str) -> str:
    """`kind` without fields of intervals and structs, whose format differs."""
    text = kind.upper().replace(" ", "")
    return next((name for name in ("INTERVAL", "STRUCT") if name in text), text)


def _steps(expressions: Sequence[str]) -> list[Step]:
    return [
        [f"from_json({side}, '{DDL}') AS {side}" for side in SIDES],
        [
            *(f"{side}.{name} AS {side}_{name}" for side in SIDES for name in COLUMNS),
            f"left.n AS {position_column('left')}",
        ],
        [
            # null only if the expression fails
            f"cast({guarded(f'try_eval(struct({sql} AS value))', 'left')} AS STRING) AS e{index}"
            for index, sql in enumerate(expressions)
        ],
    ]


def _pairs() -> list[list[str]]:
    rows = [
        json.dumps({name: values[number % len(values)] for name, values in _VALUES.items()})
        for number in range(_ROWS + 1)
    ]
    return [[left, right] for left, right in pairwise(rows)]


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**31)
    again = f"python -m tests.semantics.expression_differential {count} {seed}"
    sys.stdout.write(f"{count} texts; again: {again}\n")
    started = time.monotonic()
    spark = start_session()
    try:
        result = run(spark, count, seed)
    finally:
        spark.stop()
    sys.stdout.write(f"{result}\nin {time.monotonic() - started:.0f} s\n")
    return 1 if result.differences else 0


if __name__ == "__main__":
    sys.exit(main())
