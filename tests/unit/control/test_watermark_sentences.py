"""Sentences about a query that does not run, and about what holds its watermark back."""

from typing import Any

import pytest

from job.control.watermark_sentences import held_back, not_running
from job.instants import to_epoch_ms
from job.protocol.status import QueryState
from job.protocol.totals import SideTotals
from job.spec.engine import Engine
from tests.unit.service.builders import (
    NO_BROKER,
    NOW,
    batch,
    broker_report,
    event_times,
    status_after,
)

NOW_MS, MINUTE_MS = to_epoch_ms(NOW), 60_000
RUNNING = status_after(batch(), brokers=None)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (QueryState.PAUSED, "The query is PAUSED and emits no rows until it is resumed."),
        (
            QueryState.FAILED,
            "The query is FAILED and emits no rows: no broker answers at localhost:9092",
        ),
    ],
)
def test_query_that_emits_nothing_is_named(state: QueryState, text: str) -> None:
    down = RUNNING.model_copy(update={"state": state, "last_failure": NO_BROKER})

    assert [text] == list(not_running(down))


@pytest.mark.parametrize(
    ("state", "code", "is_named"),
    [
        (QueryState.RUNNING, None, False),
        (QueryState.PAUSED, None, True),
        (QueryState.STOPPED, "retention", True),
        (QueryState.FAILED, "broker", True),
        (QueryState.FAILED, "retention", False),  # by the failure itself
    ],
)
def test_deleted_records_are_named_while_the_query_does_not_run(
    state: QueryState, code: str | None, *, is_named: bool
) -> None:
    failure = None if code is None else NO_BROKER.model_copy(update={"code": code})
    report = broker_report()
    left = report.left.model_copy(update={"earliest": {0: 97, 1: 100}})
    report = report.model_copy(update={"left": left})
    of = {"state": state, "last_failure": failure, "brokers": report}

    text = "".join(not_running(RUNNING.model_copy(update=of)))

    lost = "\nKafka has deleted unread records: 7 of left partition 0. The query cannot"
    assert is_named == (lost in text)
    assert is_named == ("`streamjoin checkpoint skip-gap SPEC` (keeps the rows" in text)
    of["brokers"] = report.model_copy(update={"error": "no answer"})
    assert "deleted" not in "".join(not_running(RUNNING.model_copy(update=of)))


def test_many_partitions_with_deleted_records_are_counted() -> None:
    earliest = dict.fromkeys(range(6), 5)
    left = broker_report().left.model_copy(
        update={"read": dict.fromkeys(range(6), 3), "earliest": earliest}
    )
    report = broker_report().model_copy(update={"left": left})
    stopped = RUNNING.model_copy(update={"state": QueryState.STOPPED, "brokers": report})

    assert "2 of left partition 3 and of 2 other partitions." in "".join(not_running(stopped))


@pytest.mark.parametrize(
    ("left", "right", "text"),
    [
        (
            event_times(NOW_MS),
            event_times(NOW_MS - MINUTE_MS),
            (
                "The right side holds the watermark back, at 2026-11-20T11:58:48.500Z: the left "
                "side is 1 min 2 s ahead. All of its records are read, and the newest event time "
                "is 2026-11-20T11:59:00.000Z; 3 of its 10 records are bad (3 malformed_json). The "
                "watermark advances when newer right records arrive that can be read; without them "
                "it needs `right.idle_after`."
            ),
        ),
        (
            event_times(NOW_MS),
            event_times(NOW_MS),
            (
                "The right side holds the watermark back, at 2026-11-20T11:59:48.500Z: the left "
                "side is 1.5 s ahead, 1.5 s of it because right.watermark_delay is longer. The "
                "watermark advances when newer right records arrive."
            ),
        ),
        (
            event_times(NOW_MS),
            event_times(NOW_MS - MINUTE_MS, held_back_by=1),
            (
                "Partition 1 of the right side holds the watermark back, at 2026-11-20T11:58:48."
                "500Z: it has unread records. The watermark advances as they are read."
            ),
        ),
        (
            event_times(None),
            event_times(NOW_MS),
            (
                "The left side received no readable record since the job started. Without an "
                "event time of both sides the watermark does not advance, and no unmatched rows "
                "are emitted."
            ),
        ),
        (
            event_times(None, held_back_by=0),
            event_times(NOW_MS),
            (
                "No readable record of left partition 0 was read yet, and there is a backlog. "
                "Until then the watermark does not advance, and no unmatched rows are emitted."
            ),
        ),
    ],
)
def test_what_holds_the_watermark_back_is_named(left: Any, right: Any, text: str) -> None:
    times = {"left": left, "right": right}
    held = RUNNING.model_copy(update={"event_times": times, "idle": {}})

    assert [text] == list(held_back(held))


def test_idle_side_is_named() -> None:
    idle = RUNNING.model_copy(update={"idle": {"right": True}})

    [sentence] = held_back(idle)
    assert sentence.startswith("The right side is idle: its event time follows the clock")

    both_idle = RUNNING.model_copy(update={"idle": {"left": True, "right": True}})
    [sentence] = held_back(both_idle)
    assert sentence.startswith("The left and right sides are idle: their event time follows")


@pytest.mark.parametrize("last_batch", [None, batch(run_id="run-1")])
def test_idle_side_does_not_follow_the_clock_before_the_first_batch(last_batch: Any) -> None:
    started = {"last_batch": last_batch, "run_id": "run-2", "idle": {"left": True, "right": True}}
    waits = RUNNING.model_copy(update=started)

    [sentence] = held_back(waits)
    assert sentence.startswith("The query has run no batch since it started.")
    assert "when a record of either side arrives" in sentence
    assert "also with idle_after" in sentence

    real_time = waits.model_copy(update={"engine": Engine.REAL_TIME})
    [sentence] = held_back(real_time)
    assert "event time follows the clock" in sentence


def test_bad_records_of_the_slower_side_are_named() -> None:
    times = {"left": event_times(NOW_MS), "right": event_times(NOW_MS - MINUTE_MS)}
    totals = RUNNING.totals.model_copy(
        update={"right": SideTotals(records=40, bad_records={"schema_mismatch": 10})}
    )
    held = RUNNING.model_copy(
        update={"event_times": times, "totals": totals, "idle": {"right": False}}
    )

    [sentence] = held_back(held)
    assert "10 of its 40 records are bad (10 schema_mismatch)" in sentence
    assert "idle_after" not in sentence  # it is set
