"""Raises the watermark of a running query, which Spark has no call for."""

from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

_ALL_BATCHES = 2**63 - 1


def raise_watermark(query: StreamingQuery, to_ms: int) -> None:
    """From the next batch on the watermark is at least `to_ms`; it never goes back.

    MicroBatchExecution plans a batch with what its watermark tracker says and writes that into the
    offset log, so a batch that is run again has the same watermark; and where the watermark has
    risen it runs a batch though no record has come. It plans batches and ends them under its
    progress lock: under it nobody else raises the watermark between the look and the rise.
    Private API of Spark 4.3.0, pinned by tests/semantics/test_watermark.py.
    """
    execution = query._jsq.streamingQuery()
    lock = execution.awaitProgressLock()
    lock.lock()
    try:
        tracker = execution.watermarkTracker()
        # There is none before the query has read its checkpoint.
        if tracker is not None and to_ms > tracker.currentWatermark():
            if execution.noNewData():
                _forget_the_next_batch(execution)
            tracker.setWatermark(to_ms)
    finally:
        lock.unlock()


def current_watermark(query: StreamingQuery) -> int:
    """The watermark of the next batch, milliseconds since 1970; 0 where there is none."""
    return int(query._jsq.streamingQuery().watermarkTracker().currentWatermark())


def _forget_the_next_batch(execution: Any) -> None:
    """Let the batch to come have another watermark than the one it was last thought to have.

    Each time Spark finds no new data it asks whether a batch without any is due, notes the
    watermark that batch would have, and fails the query where it later has another. What it noted
    of batches that have run is worked out anew from the offset log. Not for a batch at work, which
    needs its notes: then there are none yet of the one to come.
    """
    field = execution.getClass().getDeclaredField("watermarkPropagator")
    field.setAccessible(True)
    field.get(execution).purge(_ALL_BATCHES)
