"""Analyzes SQL and keys with Spark."""

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from job.spec.sides import SIDES
from tests.semantics.sql_fuzz import COLUMNS

DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


class SparkAnalyzer:
    """Analyzes SQL over empty DataFrames with a column of each type."""

    def __init__(self, spark: SparkSession) -> None:
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

    def joins_on(self, left: str, right: str) -> bool:
        """Whether Spark joins on this pair of keys."""
        keys = [
            text if "." in text else f"`{side}`.{text}"
            for side, text in zip(SIDES, (left, right), strict=True)
        ]
        return self.accepts(f"({keys[0]}) = ({keys[1]})")
