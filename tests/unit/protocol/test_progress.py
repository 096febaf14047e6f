"""Spark's progress JSON as values. The JSON was recorded from Spark 4.3.0."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from job.protocol.progress import batch_progress, dead_letters_written
from job.protocol.reasons import REASONS

RECORDED = (Path(__file__).parents[2] / "golden" / "progress.json").read_text()


def recorded(**changes: Any) -> str:
    return json.dumps({**json.loads(RECORDED), **changes})


def test_recorded_progress_is_read_in_our_names_and_units() -> None:
    batch = batch_progress(RECORDED)

    assert 2 == batch.batch_id
    assert datetime(2026, 11, 20, 21, 20, 46, 500_000, UTC) == batch.started_at
    assert 0.347 == batch.duration_seconds
    assert 0.171 == batch.phase_seconds["add_batch"]
    assert (3, 1, 1) == (batch.output_records, batch.late_rows, batch.state_rows_updated)
    assert 4 == batch.state_rows_removed
    assert (0.095, 0.015, 0.131) == (
        batch.state_update_seconds,
        batch.state_removal_seconds,
        batch.state_commit_seconds,
    )
    assert 268_068 == batch.state_memory_bytes
    assert 10 == batch.state_custom["rocksdbGetCount"]
    assert 1_700_000_050_000 == batch.watermark_ms
    assert 9 == batch.input_records


def test_each_side_has_its_offsets_counts_and_reasons() -> None:
    batch = batch_progress(RECORDED)

    assert {0: 5, 1: 0} == batch.left.offsets_behind_latest
    assert {0: 0} == batch.right.offsets_behind_latest
    assert {**dict.fromkeys(REASONS, 0), "malformed_json": 2} == batch.left.bad_records
    assert (6, 1, 1_700_000_060_000) == (
        batch.left.records,
        batch.left.null_keys,
        batch.left.event_time_max_ms,
    )


def test_side_without_metrics_has_no_records() -> None:
    batch = batch_progress(recorded(observedMetrics={}))

    assert (0, None) == (batch.right.records, batch.right.event_time_max_ms)


def test_results_of_unmatched_rows_and_those_that_the_output_filter_dropped() -> None:
    output = {"records": 5, "unmatched": 2, "too_large": 0, "failed": 0, "without_key": 0}
    batch = batch_progress(recorded(observedMetrics={"joined": {"results": 9}, "output": output}))
    assert (5, 2, 4) == (batch.output_records, batch.unmatched_results, batch.filtered_results)


def test_lag_of_a_repeated_batch_is_unknown() -> None:
    progress = json.loads(RECORDED)
    progress["sources"][0]["latestOffset"] = None

    assert batch_progress(json.dumps(progress)).left.offsets_behind_latest is None


def test_sides_of_a_self_join_are_separate() -> None:
    progress = json.loads(RECORDED)
    progress["sources"][1]["endOffset"] = {"impressions": {"0": 1}}
    progress["sources"][1]["latestOffset"] = {"impressions": {"0": 9}}

    assert {0: 8} == batch_progress(json.dumps(progress)).right.offsets_behind_latest


def test_watermark_is_none_before_the_first_row() -> None:
    initial = recorded(eventTime={"watermark": "1970-01-01T00:00:00.000Z"})

    assert batch_progress(initial).watermark_ms is None
    assert batch_progress(recorded(eventTime={})).watermark_ms is None


def test_count_unknown_to_spark_is_zero() -> None:
    assert 0 == batch_progress(recorded(sink={"numOutputRows": -1})).output_records


def test_dead_letters_that_the_query_wrote_are_counted_by_side_and_reason() -> None:
    observed = {"observedMetrics": {"written": {"left/tombstone": 2, "right/late": 0}}}

    assert {("left", "tombstone"): 2} == dead_letters_written(json.dumps(observed))
    assert {} == dead_letters_written("{}")
