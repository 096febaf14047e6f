"""Analyzes SQL, keys and whole dataflows with Spark."""

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from job.dataflow.dataflow import dataflow
from job.join_spec.expressions import Expression
from job.join_spec.sides import SIDES
from job.jvm_class import jvm_class
from job.plan import tuning
from job.plan.plan import JoinPlan
from tests.semantics.sql_fuzz import COLUMNS

_CHECKER = "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker"
_OUTPUT_MODE = "org.apache.spark.sql.streaming.OutputMode"

DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


@dataclass(frozen=True)
class Analysis:
    type: str | None
    """Type in the format of Spark. None: Spark refuses the text."""
    reason: str


class SparkAnalyzer:
    """Analyzes SQL over empty DataFrames with a column of each type."""

    def __init__(self, spark: SparkSession) -> None:
        self._records = spark.createDataFrame([], RECORDS)
        columns = [f"CAST(NULL AS {kind}) AS {name}" for name, kind in record_columns()]
        self._stream = spark.readStream.format("rate").load().selectExpr(*columns)
        self.spark = spark
        empty = spark.createDataFrame([], DDL)
        self._sides = [empty.alias(side) for side in SIDES]
        self._pairs = self._sides[0].crossJoin(self._sides[1])
        self._named = self._pairs.select(
            *(
                F.col(f"`{side}`.`{name}`").alias(f"{side}_{name}")
                for side in SIDES
                for name in COLUMNS
            )
        )

    def as_written(self, kind: str, text: str) -> Analysis:
        for side in SIDES:
            text = text.replace(f"{side}.", f"`{side}`.")
        return self._analysis(self._pairs, kind, text)

    def as_planned(self, kind: str, planned: Expression) -> Analysis:
        if kind != "condition":
            return self._analysis(self._named, kind, planned.sql)
        conjuncts = [f"greatest({part.sql}, false)" for part in planned.conjuncts]
        return self._analysis(self._named, "filter", " AND ".join(conjuncts))

    def _analysis(self, frame: DataFrame, kind: str, text: str) -> Analysis:
        try:
            made = self._made(frame, kind, text)
            found = made.schema[0].dataType.simpleString() if kind == "column" else "boolean"
            made._jdf.queryExecution().optimizedPlan()
        except (PySparkException, Py4JJavaError) as error:
            return Analysis(None, str(error).partition("\n")[0][:200])
        return Analysis(found, "")

    def _made(self, frame: DataFrame, kind: str, text: str) -> DataFrame:
        if kind == "column":
            return frame.select(F.expr(text))
        if kind == "filter":
            return frame.where(F.expr(text))
        return frame.where(F.expr(f"greatest(({text}), false)"))

    def dataflow_fails(self, plan: JoinPlan) -> str:
        """Error of Spark when it plans or streams the dataflow; empty if there is none."""
        try:
            batch = dataflow(self._records, self._records, plan)
            batch._jdf.queryExecution().optimizedPlan()
            streamed = dataflow(self._stream, self._stream, plan)
            jvm: Any = self.spark._jvm
            jvm_class(jvm, _CHECKER).checkForStreaming(
                streamed._jdf.queryExecution().analyzed(), jvm_class(jvm, _OUTPUT_MODE).Append()
            )
        except (PySparkException, Py4JJavaError) as error:
            return str(error).partition("\n")[0][:300]
        return ""

    def joins_on(self, left: str, right: str) -> bool:
        """Whether Spark joins on this pair of keys."""
        keys = [
            text if "." in text else f"`{side}`.{text}"
            for side, text in zip(SIDES, (left, right), strict=True)
        ]
        return self.as_written("filter", f"({keys[0]}) = ({keys[1]})").type is not None


def record_columns() -> list[tuple[str, str]]:
    """Name and type of the columns of Spark's Kafka source."""
    return [
        ("key", "BINARY"), ("value", "BINARY"), ("topic", "STRING"), ("partition", "INT"),
        ("offset", "BIGINT"), ("timestamp", "TIMESTAMP"), ("timestampType", "INT"),
        ("headers", "ARRAY<STRUCT<key: STRING, value: BINARY>>"),
    ]  # fmt: skip


RECORDS = ", ".join(f"{name} {kind}" for name, kind in record_columns())


def set_plan_conf(spark: SparkSession) -> None:
    """Configure Spark SQL as in the plan."""
    for name in ("spark.sql.ansi.enabled", "spark.sql.mapKeyDedupPolicy"):
        spark.conf.set(name, tuning.CONF[name])
