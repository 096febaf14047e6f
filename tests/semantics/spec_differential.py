"""What `validate` accepts against what Spark accepts, on generated SQL.

    python -m tests.semantics.spec_differential N [SEED]

Each text is asked of Spark as its user wrote it (analysis, and constants computed by the optimizer)
and, where it is accepted, as the plan hands it to Spark.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from job.errors import SpecError
from job.join_spec.expressions import SIDES, Expression, Scope, condition, expression, predicate
from job.join_spec.value_schema import value_schema
from job.plan import tuning
from tests.semantics.spark_session import start_session
from tests.semantics.sql_fuzz import COLUMNS, SqlFuzz

DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

# Refused by name though Spark accepts them; the message says what to write instead.
_REFUSED_BY_NAME = (
    "is a constant that is not computed here",
    "which a spec may not use",
    "is no type that a spec may use",
    "fails: an index is 0 or more",  # with the first row
    "the regular expression",  # with the first row
    "the format",  # with the first row
    "LIKE ",  # with the first row
    "is STRING: write cast(",
    "which has no cast to TIMESTAMP",  # to_timestamp(true) fails with the first row
    "which has no cast to DATE",
    "takes 1 or more arguments, and has 0",
    "NULL is VOID: only an ARRAY or a MAP",
)
FIELDS = {"column": expression, "filter": predicate, "condition": condition}


@dataclass
class Result:
    """How many texts were accepted and refused by both, and what differs."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counted = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        shown = "\n".join(self.differences)
        return f"{counted}; {len(self.differences)} differences\n{shown}".strip()


@dataclass(frozen=True)
class Verdict:
    type: str | None
    """As Spark writes it; None where the text is refused."""
    reason: str


class SparkJudge:
    """Asks Spark about SQL over empty DataFrames with a column of each type."""

    def __init__(self, spark: SparkSession) -> None:
        empty = spark.createDataFrame([], DDL)
        self._sides = [empty.alias(side) for side in SIDES]
        self._both = self._sides[0].crossJoin(self._sides[1])
        self._named = self._both.select(
            *(
                F.col(f"`{side}`.`{name}`").alias(f"{side}_{name}")
                for side in SIDES
                for name in COLUMNS
            )
        )

    def as_written(self, kind: str, text: str) -> Verdict:
        for side in SIDES:
            text = text.replace(f"{side}.", f"`{side}`.")
        return self._verdict(self._both, kind, text)

    def as_planned(self, kind: str, planned: Expression) -> Verdict:
        if kind != "condition":
            return self._verdict(self._named, kind, planned.sql)
        return self._verdict(self._named, kind, " AND ".join(p.sql for p in planned.conjuncts))

    def _verdict(self, frame: DataFrame, kind: str, text: str) -> Verdict:
        try:
            made = self._made(frame, kind, text)
            found = made.schema[0].dataType.simpleString() if kind == "column" else "boolean"
            made._jdf.queryExecution().optimizedPlan()
        except (PySparkException, Py4JJavaError) as error:
            return Verdict(None, str(error).partition("\n")[0][:200])
        return Verdict(found, "")

    def _made(self, frame: DataFrame, kind: str, text: str) -> DataFrame:
        if kind == "column":
            return frame.select(F.expr(text))
        if kind == "filter":
            return frame.where(F.expr(text))
        return frame.where(F.expr(f"greatest(({text}), false)"))


def texts(seed: int) -> Iterator[tuple[str, str]]:
    """Fields of a spec and what is written there, without end."""
    fuzz = SqlFuzz(seed)
    choose = random.Random(seed)
    while True:
        kind = choose.choice(["column", "column", "filter", "condition"])
        text = fuzz.expression() if kind == "column" else fuzz.condition()
        yield kind, text


def run(spark: SparkSession, count: int, seed: int) -> Result:
    """Compares `count` texts."""
    with_plan_conf(spark)
    judge, result = SparkJudge(spark), Result()
    schema = value_schema(DDL, "schema")
    scope = Scope(dict.fromkeys(SIDES, schema))
    stream = texts(seed)
    for _ in range(count):
        compare(judge, scope, *next(stream), result)
    return result


def compare(judge: SparkJudge, scope: Scope, kind: str, text: str, result: Result) -> None:
    try:
        accepted = FIELDS[kind](text, scope, kind)
    except SpecError as error:
        refused = error.problems[0].message
        verdict = judge.as_written(kind, text)
        if verdict.type is None:
            result.counts["refused by both"] += 1
        elif any(name in refused for name in _REFUSED_BY_NAME):
            result.counts["refused by name"] += 1
        else:
            result.differences.append(f"{kind} {text}\n  refused: {refused}; Spark: {verdict.type}")
        return
    for way, verdict in (
        ("as written", judge.as_written(kind, text)),
        ("as planned", judge.as_planned(kind, accepted)),
    ):
        if verdict.type is None:
            result.differences.append(f"{kind} {text}\n  accepted; Spark {way}: {verdict.reason}")
            return
        if kind == "column" and _plain(verdict.type) != _plain(str(accepted.type)):
            result.differences.append(
                f"{kind} {text}\n  is {accepted.type}; Spark {way}: {verdict.type}"
            )
            return
    result.counts["accepted by both"] += 1


def _plain(kind: str) -> str:
    """Without the fields of intervals and the names of structs, which Spark writes in full."""
    text = kind.upper().replace(" ", "")
    if "INTERVAL" in text or "STRUCT" in text:
        return "INTERVAL" if "INTERVAL" in text else "STRUCT"
    return text


def with_plan_conf(spark: SparkSession) -> None:
    """Spark SQL as the plan configures it."""
    for name in ("spark.sql.ansi.enabled", "spark.sql.mapKeyDedupPolicy"):
        spark.conf.set(name, tuning.CONF[name])


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**31)
    sys.stdout.write(f"{count} texts; again: python -m tests.semantics.spec_differential {count} ")
    sys.stdout.write(f"{seed}\n")
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
