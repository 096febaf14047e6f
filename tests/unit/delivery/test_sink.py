"""What a batch has delivered, as the driver counts it and compares it with the state partitions."""

from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from job.delivery import sink as sink_module
from job.delivery.kept_back import KeptBack
from job.delivery.record_writer import RecordWriter
from job.delivery.sink import BatchSink, RunningQuery
from job.errors import DeliveryError
from job.join.join import SparkJoin
from tests.java_error import JavaError
from tests.unit.specs import plan

COMPUTED = 9
"""Results of each batch, as Spark has counted them."""


class Writer(RecordWriter):
    """What it has delivered, and the failure of its next batch."""

    can_be_interrupted = True

    def __init__(self, results: int, failure: Exception | None = None, **counts: int) -> None:
        self._results, self._counts = results, counts
        self._failure = failure

    def write_batch(self, *_: object) -> None:
        if self._failure is not None:
            raise self._failure

    def delivered(self, computed: int) -> tuple[int, Mapping[str, int]]:
        return (self._results, self._counts) if self._counts else super().delivered(computed)

    def error_of(self, _: Exception) -> DeliveryError:
        return DeliveryError("explained", retryable=True)

    def write_dead_letters(self, *_: object) -> bool:
        raise AssertionError("none are expected")

    def interval_writer(self, _: object) -> Any:
        raise AssertionError("none is expected")

    def close(self) -> None:
        raise AssertionError("the caller closes it")


class Listener(list[tuple[int, int, Mapping[str, int]]]):
    def delivered(self, batch_id: int, rows: int, results: Mapping[str, int]) -> None:
        self.append((batch_id, rows, results))

    def dead_letters(self, counts: Mapping[tuple[str, str], int]) -> None:
        raise AssertionError(f"none are expected: {counts}")

    def kept_back(self, batch_id: int, results: int) -> None:
        raise AssertionError(f"none are expected in batch {batch_id}: {results}")


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark has computed and counted."""
    monkeypatch.setattr(sink_module, "raise_if_interrupted", lambda _: None)
    monkeypatch.setattr(sink_module, "without_failures", lambda records, **_: records)
    monkeypatch.setattr(sink_module, "batch_metrics", lambda *_: {"records": COMPUTED})


class Sink(BatchSink):
    """Of a query with two state partitions."""

    def __init__(self, writer: Writer) -> None:
        self.counted, self.ended = Listener(), list[int]()
        ended = self.ended
        checkpoint: Any = None
        super().__init__(
            *(plan(), writer, SparkJoin(), None, self.counted),
            *(ended.append, KeptBack(checkpoint, None)),
        )
        running: Any = None
        self.query.set_result(running)

    def run_batch(self) -> None:
        records: Any = SimpleNamespace(sparkSession=None)
        self(records, 7)


def test_rows_and_transactions_of_a_batch_are_counted() -> None:
    sink = Sink(Writer(3, committed=1, skipped=1))
    sink.run_batch()
    assert [(7, 3, {"committed": 1, "skipped": 1})] == sink.counted
    assert [7] == sink.ended


def test_results_that_are_written_at_least_once_are_those_that_spark_has_counted() -> None:
    sink = Sink(Writer(0))
    sink.run_batch()
    assert [(7, COMPUTED, {})] == sink.counted


def test_rows_of_other_partitions_are_counted_after_a_failure() -> None:
    """They are delivered, and are not written again."""
    error = JavaError("An error occurred while calling o7.save.\n: java.io.IOException: planted")
    sink = Sink(Writer(3, error, committed=1, fenced=1))
    # Spark recognizes a stopped query by this text.
    with pytest.raises(Exception, match=r"o7\.save\.\n: java\.io\.IOException: planted"):
        sink.run_batch()
    assert [(7, 3, {"committed": 1, "fenced": 1})] == sink.counted
    assert "explained" == str(sink.failure)
    assert [] == sink.ended


@pytest.mark.parametrize("partitions", [1, 3])
def test_batch_that_did_not_run_in_the_partitions_of_the_state_is_an_error(partitions: int) -> None:
    sink = Sink(Writer(3, committed=partitions))
    with pytest.raises(RuntimeError, match="the batch is not delivered"):
        sink.run_batch()
    assert isinstance(sink.failure, DeliveryError)
    assert not sink.failure.retryable
    assert f"batch 7 ran in {partitions} partitions instead of 2" in str(sink.failure)
    assert [3] == [rows for _, rows, _ in sink.counted]
    assert [] == sink.ended


def test_failure_of_the_last_batch_before_a_stop_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is silent about it if it looks like the interruption of the query."""
    error = JavaError("An error occurred while calling o7.save.\n: java.lang.InterruptedException")
    sink = Sink(Writer(3, error))

    def batch_fails(*_: object) -> None:
        with pytest.raises(Exception, match="InterruptedException"):
            sink.run_batch()

    monkeypatch.setattr(sink_module, "stop_gracefully", batch_fails)
    query: Any = None
    with structlog.testing.capture_logs() as logs:
        RunningQuery(query, sink).stop(timedelta(seconds=1))

    [log] = logs
    assert ("last_batch_failed", "explained") == (log["event"], log["reason"])
