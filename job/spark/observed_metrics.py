"""Metrics that DataFrame.observe() has collected, read before Spark commits the batch."""

import json
from collections.abc import Mapping
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from job.spark.stream_execution import batch_execution


class Counted(Protocol):
    """A function like `observed`."""

    def __call__(
        self, rows: DataFrame, name: str, conditions: Mapping[str, str], *metrics: Column
    ) -> DataFrame: ...


def observed(
    rows: DataFrame, name: str, conditions: Mapping[str, str], *metrics: Column
) -> DataFrame:
    """The same rows. Spark reports, with the batch, how many of them meet each condition, and
    further metrics. `name`: of the metrics."""
    counts = (count_where(condition).alias(each) for each, condition in conditions.items())
    return rows.observe(name, *counts, *metrics)


def count_where(condition: str) -> Column:
    """As count_if, for which Spark adds a column: one more projection per record, and a larger
    plan to optimize in each batch."""
    return F.expr(f"count(CASE WHEN {condition} THEN 1 END)")


def batch_metrics(query: StreamingQuery, name: str) -> Mapping[str, Any]:
    """Metrics of the current batch. Empty: the observed node had no records."""
    return execution_metrics(batch_execution(query), name)


def execution_metrics(execution: Any, name: str) -> Mapping[str, Any]:
    """Metrics of a QueryExecution. Empty: none were collected."""
    row = execution.observedMetrics().get(name)
    metrics: Mapping[str, Any] = json.loads(row.get().json()) if row.isDefined() else {}
    return metrics
