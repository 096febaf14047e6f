"""Hooks that only save time: without them the public way gives the same result."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from job.spark import listener, lost_hooks
from tests.polling import wait_until


def lost(*_: object) -> None:
    raise AttributeError("no such member")


@pytest.fixture(autouse=True)
def _nothing_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_hooks, "_reported", set())


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
    hooks: list[str] = []
    monkeypatch.setattr(listener, "report_lost_hook", lambda hook, _: hooks.append(hook))
    reports = Reports()
    reported = listener.listen(spark, reports)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    query = (
        rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    )
    try:
        wait_until(lambda: reports, 60, "a batch is reported")
        assert not reported.are_complete(str(query.runId))
    finally:
        query.stop()
    wait_until(lambda: reported.are_complete(str(query.runId)), 60, "the end is reported")

    assert str(query.id) in reports[0]
    assert '"numInputRows"' in reports[0]
    assert ["listener"] * is_lost == hooks
