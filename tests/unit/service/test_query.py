"""GET /v1/query: figures of the status, and null for unknown ones."""

import time
from pathlib import Path

import pytest

from job.protocol.reasons import DEAD_LETTER_REASONS, REASONS, RESULT_REASONS
from job.protocol.reports import ResetReport
from job.protocol.status import Phase, QueryState
from job.spec.start_positions import StartPositions
from tests.unit.service.builders import (
    NO_BROKER,
    NOW,
    batch,
    event_times,
    just_polled,
    serving,
    side,
    status,
    status_after,
)
from tests.unit.service.calls import call, settings

NOT_BAD = dict.fromkeys(REASONS, 0)
NO_BAD_RESULTS = dict.fromkeys(RESULT_REASONS, 0)
NO_LETTERS = dict.fromkeys(DEAD_LETTER_REASONS, 0)


def test_query_has_its_last_batch_lag_and_watermark(path: Path) -> None:
    given = status_after(
        batch(too_large_results=2),
        last_failure=NO_BROKER,
        brokers=just_polled(),
        phase=Phase.REAL_TIME,
        diagnosis="30 results were written.",
    )
    with serving(path, given):
        answer = call("GET", "/v1/query", settings(path))

    body = answer.json()
    assert 200 == answer.status_code
    assert body.pop("uptime_seconds") == pytest.approx(time.time() - NOW.timestamp(), abs=60)
    assert {
        "name": "ad_attribution",
        "join_type": "left_outer",
        "delivery": "exactly_once",
        "engine": "micro_batch",
        "state": "RUNNING",
        "diagnosis": "30 results were written.",
        "allowed_commands": ["pause", "resume", "stop", "restart"],
        "phase": "real_time",
        "table": None,
        "table_records_left": None,
        "query_id": "query-1",
        "run_id": "run-2",
        "started_at": "2026-11-20T12:00:00Z",
        "state_since": "2026-11-20T12:00:00Z",
        "last_progress_at": "2026-11-20T12:00:00Z",
        "last_batch": {
            "batch_id": 7,
            "started_at": "2026-11-20T12:00:00Z",
            "duration_seconds": 0.5,
            "phase_seconds": {"add_batch": 0.25, "trigger_execution": 0.5},
            "input_records": 30,
            "output_records": 30,
            "late_rows": 2,
            "state_rows": 400,
            "state_memory_bytes": 1_000_000,
        },
        "watermark": "2026-11-20T11:59:44.500000Z",
        "watermark_delay_seconds": 11.5,
        "watermark_held_back_by": "right",
        "watermark_held_back_by_partition": None,
        "late_rows": 2,
        "output_records": 30,
        "matched_results": 26,
        "unmatched_results": 4,
        "filtered_results": 1,
        "latency": {"p50_seconds": 0.4, "p99_seconds": 1.25},
        "left": {
            "topic": "impressions",
            "new_topics": [],
            "input_records": 20,
            "filtered_records": 0,
            "null_key_records": 1,
            "duplicate_rows": 3,
            "stored_ids": 90,
            "skipped_records": 7,
            "bad_records": {**NOT_BAD, "malformed_json": 3},
            "dead_letter_records": NO_LETTERS,
            "event_time_max": "2026-11-20T11:59:57.500000Z",
            "watermark": "2026-11-20T11:59:47.500000Z",
            "idle": None,
            "offsets_behind_latest": {"0": 10, "1": 5},
            "offsets_behind_latest_total": 15,
            "state_rows": 160,
            "unmatched_rows": 42,
        },
        "right": {
            "topic": "clicks",
            "new_topics": ["clicks_eu"],
            "input_records": 10,
            "filtered_records": 0,
            "null_key_records": 0,
            "duplicate_rows": 0,
            "stored_ids": None,
            "skipped_records": 0,
            "bad_records": {**NOT_BAD, "malformed_json": 3},
            "dead_letter_records": NO_LETTERS,
            "event_time_max": "2026-11-20T11:59:56Z",
            "watermark": "2026-11-20T11:59:44.500000Z",
            "idle": False,
            "offsets_behind_latest": {"0": 2, "1": 0},
            "offsets_behind_latest_total": 2,
            "state_rows": 240,
            "unmatched_rows": None,
        },
        "output": {
            "topic": "attributed",
            "end_offsets": {"0": 1_200, "1": 34},
            "end_offsets_total": 1_234,
            "bad_results": {**NO_BAD_RESULTS, "value_too_large": 2},
        },
        "state_counted_at": "2026-11-20T12:00:00Z",
        "brokers": {
            "reachable": True,
            "answered_at": given.brokers.answered_at.isoformat().replace("+00:00", "Z"),
            "error": None,
        },
        "last_reset": None,
        "last_change": None,
        "change": {
            "old_checkpoint": "file:/old",
            "phase": "reading",
            "records": 9,
            "records_left": 4,
            "possibly_late_records": 2,
            "offsets": {"left": {"0": 5}, "right": {"0": 4}},
        },
        "filter_change": None,
        "commands": [],
        "last_failure": {
            "code": "broker",
            "message": "no broker answers at localhost:9092",
            "retryable": True,
            "at": "2026-11-20T12:00:00Z",
        },
    } == body


def test_unknown_figures_are_null_before_the_first_batch(path: Path) -> None:
    with serving(path, status(QueryState.STARTING)):
        body = call("GET", "/v1/query", settings(path)).json()

    unknown = {
        "phase", "query_id", "run_id", "last_progress_at", "last_batch", "watermark",
        "last_failure", "watermark_held_back_by", "watermark_held_back_by_partition",
        "watermark_delay_seconds", "state_counted_at", "brokers", "last_reset", "last_change",
        "change", "filter_change", "latency", "table", "table_records_left",
    }  # fmt: skip
    assert unknown == {name for name, value in body.items() if value is None}
    assert {
        "topic": None,
        "new_topics": [],
        "input_records": 0,
        "filtered_records": 0,
        "null_key_records": 0,
        "duplicate_rows": 0,
        "stored_ids": None,
        "skipped_records": 0,
        "bad_records": NOT_BAD,
        "dead_letter_records": NO_LETTERS,
        "event_time_max": None,
        "watermark": None,
        "idle": None,
        "offsets_behind_latest": None,
        "offsets_behind_latest_total": None,
        "state_rows": None,
        "unmatched_rows": None,
    } == body["left"]
    assert {
        "topic": None,
        "end_offsets": None,
        "end_offsets_total": None,
        "bad_results": NO_BAD_RESULTS,
    } == body["output"]


@pytest.mark.parametrize("state", QueryState)
def test_lag_and_watermark_are_known_in_every_state(path: Path, state: QueryState) -> None:
    with serving(path, status_after(batch(), state=state, brokers=just_polled())):
        body = call("GET", "/v1/query", settings(path)).json()

    assert 15 == body["left"]["offsets_behind_latest_total"]
    assert "2026-11-20T11:59:44.500000Z" == body["watermark"]


def test_lag_is_unknown_while_the_brokers_do_not_answer(path: Path) -> None:
    unreachable = just_polled(error="Local: Timed out")
    with serving(path, status_after(batch(), brokers=unreachable)):
        body = call("GET", "/v1/query", settings(path)).json()

    assert body["left"]["offsets_behind_latest"] is None
    assert ("attributed", None) == (body["output"]["topic"], body["output"]["end_offsets"])
    assert (False, "Local: Timed out") == (body["brokers"]["reachable"], body["brokers"]["error"])
    assert "impressions" == body["left"]["topic"]


@pytest.mark.parametrize(
    ("left_ms", "right_ms", "expected"),
    [
        (20_000, 20_000, "right"),  # the delays are 10 s and 11.5 s
        (20_000, 21_500, None),
        (20_000, 21_501, "left"),
        (None, 20_000, "left"),
        (20_000, None, "right"),
        (None, None, None),
    ],
)
def test_side_that_holds_the_watermark_back_is_named(
    path: Path, left_ms: int | None, right_ms: int | None, expected: str | None
) -> None:
    sides = {
        "left": side(event_time_max_ms=left_ms),
        "right": side(event_time_max_ms=right_ms),
    }
    with serving(path, status_after(batch(**sides))):
        body = call("GET", "/v1/query", settings(path)).json()

    assert expected == body["watermark_held_back_by"]


def test_partition_that_holds_the_watermark_back_is_named(path: Path) -> None:
    times = {"left": event_times(20_000), "right": event_times(10_000, held_back_by=1)}
    with serving(path, status_after(batch(), event_times=times)):
        body = call("GET", "/v1/query", settings(path)).json()

    assert ("right", 1) == tuple(
        body[name] for name in ("watermark_held_back_by", "watermark_held_back_by_partition")
    )
    assert "1969-12-31T23:59:58.500000Z" == body["right"]["watermark"]


def test_last_reset_is_reported(path: Path) -> None:
    report = ResetReport(
        requested_by="ada",
        requested_at=NOW,
        starts=StartPositions(left={0: 5}, right="latest"),
        completed_at=NOW,
        old_checkpoint="file:/checkpoints/joined.2026-11-20",
    )
    with serving(path, status_after(batch(), last_reset=report)):
        body = call("GET", "/v1/query", settings(path)).json()

    assert {
        "requested_by": "ada",
        "requested_at": "2026-11-20T12:00:00Z",
        "left": {"0": 5},
        "right": "latest",
        "completed_at": "2026-11-20T12:00:00Z",
        "old_checkpoint": "file:/checkpoints/joined.2026-11-20",
        "error": None,
    } == body["last_reset"]
