"""Analyzes SQL, keys and whole dataflows with Spark."""

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from job.dataflow.dataflow import dataflow
from job.join.join import SparkJoin
from job.jvm_class import jvm_class
from job.plan.plan import JoinPlan
from job.spec.sides import SIDES
from tests.semantics.sql_fuzz import COLUMNS

_CHECKER = "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker"
_OUTPUT_MODE = "org.apache.spark.sql.streaming.OutputMode"

DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


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

    def accepts(self, text: str) -> bool:
        for side in SIDES:
            text = text.replace(f"{side}.", f"`{side}`.")
        try:
            self._pairs.select(F.expr(text))._jdf.queryExecution().optimizedPlan()
        except (PySparkException, Py4JJavaError):
            return False
        return True

    def dataflow_fails(self, plan: JoinPlan) -> str:
        """Error of Spark when it plans or streams the dataflow; empty if there is none."""
        try:
            batch = dataflow(self._records, self._records, plan, SparkJoin())
            batch._jdf.queryExecution().optimizedPlan()
            streamed = dataflow(self._stream, self._stream, plan, SparkJoin())
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
        return self.accepts(f"({keys[0]}) = ({keys[1]})")


def record_columns() -> list[tuple[str, str]]:
    """Name and type of the columns of Spark's Kafka source."""
    return [
        ("key", "BINARY"), ("value", "BINARY"), ("topic", "STRING"), ("partition", "INT"),
        ("offset", "BIGINT"), ("timestamp", "TIMESTAMP"), ("timestampType", "INT"),
        ("headers", "ARRAY<STRUCT<key: STRING, value: BINARY>>"),
    ]  # fmt: skip


RECORDS = ", ".join(f"{name} {kind}" for name, kind in record_columns())
