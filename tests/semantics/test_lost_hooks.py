"""Hooks that only save time: without them the public way gives the same result."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import structlog
from pyspark.sql import SparkSession

from job.spark import arrow_map, listener, lost_hooks
from tests.polling import wait_until


def lost(*_: object) -> None:
    raise AttributeError("no such member")


@pytest.fixture(autouse=True)
def _nothing_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_hooks, "_reported", set())


def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})


@pytest.mark.usefixtures("same_python")
@pytest.mark.parametrize("is_lost", [False, True])
def test_rows_are_mapped_in_arrow_with_and_without_the_hook(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *, is_lost: bool
) -> None:
    if is_lost:
        monkeypatch.setattr(arrow_map, "_map_in_arrow", lost)
    with structlog.testing.capture_logs() as logs:
        [row] = arrow_map.map_in_arrow(spark.range(7).coalesce(1), count, "rows BIGINT").collect()

    assert 7 == row.rows
    assert (["arrow_map"] if is_lost else []) == [log["hook"] for log in logs]


class Reports(list[str]):
    def batch(self, progress: str) -> None:
        self.append(progress)

    def idle(self) -> None:
        pass


@pytest.mark.parametrize("is_lost", [False, True])
def test_progress_is_reported_with_and_without_the_hook(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_lost: bool
) -> None:
    if is_lost:
        monkeypatch.setattr(listener, "_listen", lost)
    reports = Reports()
    listener.listen(spark, reports)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    query = (
        rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    )
    try:
        wait_until(lambda: reports, 60, "a batch is reported")
    finally:
        query.stop()

    assert str(query.id) in reports[0]
    assert '"numInputRows"' in reports[0]
