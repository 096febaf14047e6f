"""Compares what `validate` and Spark accept, on generated SQL and whole specs.

    python -m tests.semantics.spec_differential N [SEED]

Spark analyzes each text as written, including the constants that the optimizer computes, and each
accepted text also in the form of the plan.
"""

import random
import sys
import time
from collections.abc import Iterator
from itertools import islice

from pyspark.sql import SparkSession

from job.errors import SpecError
from job.join_spec.expressions import Scope, condition, expression, predicate
from job.join_spec.sides import SIDES
from job.join_spec.value_schema import value_schema
from tests.refusals import EXPRESSION_MESSAGES
from tests.semantics import whole_specs
from tests.semantics.comparison import Result
from tests.semantics.spark_analyzer import DDL, SparkAnalyzer, set_plan_conf
from tests.semantics.spark_session import start_session
from tests.semantics.sql_fuzz import SqlFuzz
from tests.sql_worker import SQL

FIELDS = {"column": expression, "filter": predicate, "condition": condition}


def texts(seed: int) -> Iterator[tuple[str, str]]:
    """Pairs of field and text, indefinitely."""
    fuzz = SqlFuzz(seed)
    choose = random.Random(seed)
    while True:
        kind = choose.choice(["column", "column", "filter", "condition"])
        text = fuzz.expression() if kind == "column" else fuzz.condition()
        yield kind, text


def run(spark: SparkSession, count: int, seed: int) -> Result:
    """Compares `count` texts."""
    set_plan_conf(spark)
    analyzer, result = SparkAnalyzer(spark), Result()
    schema = value_schema(DDL, "schema", SQL)
    scope = Scope(SQL, dict.fromkeys(SIDES, schema))
    stream = texts(seed)
    for _ in range(count):
        compare(analyzer, scope, *next(stream), result)
    return result


def compare(analyzer: SparkAnalyzer, scope: Scope, kind: str, text: str, result: Result) -> None:
    try:
        accepted = FIELDS[kind](text, scope, kind)
    except SpecError as error:
        refused = error.problems[0].message
        analysis = analyzer.as_written(kind, text)
        if analysis.type is None:
            result.counts["refused by both"] += 1
        elif any(message in refused for message in EXPRESSION_MESSAGES):
            result.counts["refused by name"] += 1
        else:
            result.differences.append(
                f"{kind} {text}\n  refused: {refused}; Spark: {analysis.type}"
            )
        return
    for form, analysis in (
        ("as written", analyzer.as_written(kind, text)),
        ("as planned", analyzer.as_planned(kind, accepted)),
    ):
        if analysis.type is None:
            result.differences.append(f"{kind} {text}\n  accepted; Spark {form}: {analysis.reason}")
            return
        if kind == "column" and _plain(analysis.type) != _plain(str(accepted.type)):
            result.differences.append(
                f"{kind} {text}\n  is {accepted.type}; Spark {form}: {analysis.type}"
            )
            return
    result.counts["accepted by both"] += 1


def _plain(kind: str) -> str:
    """`kind` without fields of intervals and structs, whose format differs."""
    text = kind.upper().replace(" ", "")
    if "INTERVAL" in text or "STRUCT" in text:
        return "INTERVAL" if "INTERVAL" in text else "STRUCT"
    return text


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**31)
    sys.stdout.write(f"{count} texts, {count // 10} specs; again: ")
    sys.stdout.write(f"python -m tests.semantics.spec_differential {count} {seed}\n")
    started = time.monotonic()
    spark = start_session()
    try:
        result = run(spark, count, seed)
        analyzer = SparkAnalyzer(spark)
        for document in islice(whole_specs.specs(seed), count // 10):
            whole_specs.compare_spec(analyzer, document, result)
    finally:
        spark.stop()
    sys.stdout.write(f"{result}\nin {time.monotonic() - started:.0f} s\n")
    return 1 if result.differences else 0


if __name__ == "__main__":
    sys.exit(main())
