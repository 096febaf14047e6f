"""State lookups run one at a time, in order; other calls do not wait for them."""

import asyncio
import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from job.control.control_handler import COUNT_LATEST_SECONDS
from job.control.lookup_queue import PAUSE_SECONDS_MAX, WAITING_MAX
from job.control.transitions import possible_commands
from job.errors import (
    BusyError,
    CancelledError,
    CheckpointError,
    ConflictError,
    Problem,
    RequestError,
    RetentionError,
    SpecError,
)
from job.event_time.history import WatermarkLine
from job.plan.fingerprint import fingerprint
from job.protocol import calls
from job.protocol.control import control_socket
from job.protocol.reports import ChangeRequestReport
from job.protocol.status import QueryState
from job.spec.sides import Side
from tests.polling import wait_until
from tests.unit.control.lookups import LOOKUP_SECONDS, LOOKUPS, PATIENCE_SECONDS, Clock, Harness
from tests.unit.protocol.test_progress import recorded
from tests.unit.service.builders import NOW, batch, side, status_after
from tests.unit.service.calls import settings, with_client
from tests.unit.specs import plan

CHANGE = ChangeRequestReport(requested_by="ada", requested_at=NOW, checkpoint="/checkpoints/new")


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Harness:
    clock = Clock()
    monkeypatch.setattr("job.control.control_handler.time", clock)
    monkeypatch.setattr("job.control.lookup_queue.time", clock)
    return Harness(clock, plan())


def test_offsets_of_an_explanation_are_older_than_its_state(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that ends between both adds rows to the state, and removes none that was read."""
    order: list[str] = []
    stats, state = harness.handler._stats, harness.runner.state_reader
    line = stats.watermark_line

    def watermark_line(delays_ms: Mapping[Side, int], *, live: bool) -> WatermarkLine:
        assert not live, "the state has the rows of the intervals that have ended"
        order.append("offsets")
        return line(delays_ms, live=live)

    monkeypatch.setattr(stats, "watermark_line", watermark_line)
    monkeypatch.setattr(harness.runner, "state_reader", lambda: order.append("state") or state())

    harness.read("explain")

    assert ["offsets", "state"] == order


@pytest.mark.parametrize(("engine", "has_latency"), [("micro_batch", True), ("real_time", False)])
def test_status_has_the_allowed_commands_and_the_latency_of_batches(
    engine: str, has_latency: bool
) -> None:
    handler = Harness(Clock(), plan(engine=engine)).handler
    handler._stats.batch(recorded(timestamp=datetime.now(UTC).isoformat()))

    status = handler.status()

    assert ["pause", "resume", "stop", "restart"] == status.allowed_commands[:4]
    assert has_latency == (status.latency is not None)


@pytest.mark.parametrize(
    ("fields", "possible"),
    [
        ({"change": None}, set()),
        ({}, {"undo"}),
        ({"run_id": None, "change": None}, {"undo"}),  # It is not known yet.
        ({"change": None, "last_change": CHANGE}, {"cancel"}),
        ({"change": None, "last_change": CHANGE.model_copy(update={"failed_at": NOW})}, set()),
        ({"change": None, "last_change": CHANGE.model_copy(update={"checkpoint": None})}, set()),
    ],
)
def test_undo_and_cancel_are_possible_only_if_there_is_a_change(
    fields: dict[str, Any], possible: set[str]
) -> None:
    known = {"last_change": None, "run_id": "run-2", **fields}
    commands = possible_commands(status_after(batch(), **known))

    assert ["pause", "resume", "stop", "restart", "change"] == commands[:5]
    assert possible == set(commands[5:])


def test_stopped_query_that_another_one_continues_names_its_checkpoint(tmp_path: Path) -> None:
    harness = Harness(Clock(), plan(checkpoint=str(tmp_path)))
    changed = {"format": 1, "checkpoint": "file:/new"}
    (tmp_path / "changed.json").write_text(json.dumps(changed))

    assert "file:/new" not in harness.handler.status().diagnosis
    harness.runner.state = QueryState.STOPPED
    assert harness.handler.status().diagnosis == (
        "The query is STOPPED, and another query continues it after a change: that of file:/new. "
        "End this job."
    )
    (tmp_path / "changed.json").unlink()
    assert "until it is resumed" in harness.handler.status().diagnosis


def test_offsets_of_a_stopped_query_are_those_of_its_checkpoint(tmp_path: Path) -> None:
    """A job that starts with a stopped query has read nothing."""
    harness = Harness(Clock(), plan(checkpoint=str(tmp_path)))
    for log in ("offsets", "commits"):
        (tmp_path / "query" / log).mkdir(parents=True)
    (tmp_path / "query" / "commits" / "0").write_text("v1\n{}")
    (tmp_path / "query" / "offsets" / "0").write_text(
        'v2\n{"batchWatermarkMs":0}\nleft:{"impressions":{"0":5}}\nright:{"clicks":{"0":2}}'
    )
    settings = fingerprint(plan(checkpoint=str(tmp_path)))
    document = {"format": 1, "settings": settings}
    (tmp_path / "fingerprint.json").write_text(json.dumps(document))

    def read() -> object:
        brokers = harness.handler.status().brokers
        assert brokers is not None
        return brokers.left.read

    assert {0: 90, 1: 100} == read()
    harness.runner.state = QueryState.STOPPED
    assert {0: 5} == read()
    assert "5 of left partition 0. The query cannot" in harness.handler.status().diagnosis
    (tmp_path / "reset.json").write_text("")
    assert {0: 90, 1: 100} == read(), "the files belong partly to the query before the reset"
    (tmp_path / "reset.json").unlink()
    assert 0 == harness.handler.status().totals.left.skipped_records
    skipped = {"side": "left", "topic": "impressions", "partition": 0, "batch_id": 0}
    skipped |= {"first_offset": 5, "next_offset": 9, "skipped_at": "2026-11-20T12:00:00Z"}
    (tmp_path / "skipped.json").write_text(json.dumps({"format": 1, "ranges": [skipped]}))
    assert 4 == harness.handler.status().totals.left.skipped_records

    for damaged in ("query/offsets/0", "skipped.json"):
        (tmp_path / damaged).write_text("damaged")
    assert {0: 90, 1: 100} == read()
    assert 0 == harness.handler.status().totals.left.skipped_records


@pytest.mark.parametrize("second", LOOKUPS)
@pytest.mark.parametrize("first", LOOKUPS)
def test_lookup_waits_until_the_earlier_one_has_ended(
    first: str, second: str, harness: Harness
) -> None:
    with harness.running(first) as lookup:
        waiting = harness.submit(second)
        harness.wait_for_waiting(1)
        assert not lookup.done()
    assert lookup.result(PATIENCE_SECONDS) is not None
    harness.clock.now += LOOKUP_SECONDS  # the pause after the first
    assert waiting.result(PATIENCE_SECONDS) is not None


def test_waiting_lookups_run_in_their_order(harness: Harness) -> None:
    keys = [str(number) for number in range(WAITING_MAX)]
    with harness.running("state"):
        waiting = []
        for count, key in enumerate(keys, start=1):
            waiting.append(harness.submit("state", key))
            harness.wait_for_waiting(count)
    harness.wait_for_all(waiting)
    assert ["7", *keys] == harness.reader.keys


def test_lookup_is_refused_only_if_many_wait(harness: Harness) -> None:
    harness.read("state")
    harness.clock.now += PAUSE_SECONDS_MAX
    with harness.running("explain"):
        waiting = [harness.submit("state") for _ in range(WAITING_MAX)]
        harness.wait_for_waiting(WAITING_MAX)
        with pytest.raises(BusyError) as refused:
            harness.read("state")
    assert WAITING_MAX * LOOKUP_SECONDS == refused.value.retry_after_seconds
    harness.wait_for_all(waiting)


@pytest.mark.parametrize("call", LOOKUPS)
def test_next_lookup_waits_for_the_pause(call: str, harness: Harness) -> None:
    harness.read(call)
    paused = harness.submit(call)
    harness.clock.now += PAUSE_SECONDS_MAX - 0.001
    harness.wait_for_waiting(1)
    assert not paused.done()
    harness.clock.now += 0.001
    assert paused.result(PATIENCE_SECONDS) is not None


def test_waiting_lookup_ends_when_its_caller_is_gone(harness: Harness) -> None:
    gone = Event()
    with harness.running("state"):
        waiting = harness.submit("state", gone=gone)
        harness.wait_for_waiting(1)
        gone.set()
        with pytest.raises(CancelledError):
            waiting.result(PATIENCE_SECONDS)
        harness.wait_for_waiting(0)


@pytest.mark.parametrize("call", LOOKUPS)
def test_periodic_count_is_cancelled_by_a_lookup(
    call: str, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job.control.control_handler.COUNT_PAUSE_SECONDS", 0.001)
    counting = threading.Event()
    cancelled: list[bool] = []

    def count(cancel: Event) -> None:
        if not counting.is_set():
            counting.set()
            cancelled.append(cancel.wait(PATIENCE_SECONDS))
            raise CancelledError("the count was cancelled")

    harness.reader.during_count = count
    harness.handler.start()
    try:
        assert counting.wait(PATIENCE_SECONDS)
        assert harness.read(call) is not None
        assert [True] == cancelled
        harness.clock.now += PAUSE_SECONDS_MAX
        wait_until(
            lambda: harness.handler.status().state_count, PATIENCE_SECONDS, "the rows are counted"
        )
    finally:
        harness.handler.close()


def test_periodic_count_ends_with_the_job(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job.control.control_handler.COUNT_PAUSE_SECONDS", 0.001)
    counting, ended = threading.Event(), threading.Event()

    def count(cancel: Event) -> None:
        counting.set()
        assert cancel.wait(PATIENCE_SECONDS)
        ended.set()

    harness.reader.during_count = count
    harness.handler.start()
    assert counting.wait(PATIENCE_SECONDS)
    harness.handler.close()
    assert ended.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("refusal", "of_the_call"),
    [
        (SpecError([Problem("join.type", None, "is unknown")]), RequestError),
        (CheckpointError("contains a query"), ConflictError),
        (RetentionError("Kafka has deleted records"), ConflictError),
        (ConflictError("is being changed", allowed=[]), ConflictError),
    ],
)
def test_refused_change_is_an_error_of_its_call(
    harness: Harness, refusal: Exception, of_the_call: type[Exception]
) -> None:
    harness.runner.refusal = refusal
    plan = calls.ChangePlan(spec="name: x", state_partitions=8)
    change = calls.Change(by="ada", spec="name: x", state_partitions=8)
    for call in (
        lambda: harness.handler.read(plan, Event()),
        lambda: harness.handler.command(change),
    ):
        with pytest.raises(of_the_call) as raised:
            call()
        assert str(refusal) == str(raised.value)


def test_lookups_over_http_wait_and_only_the_last_of_many_is_refused(
    harness: Harness, tmp_path: Path
) -> None:
    url = "/v1/query/explain?key=7"

    async def send(client: httpx.AsyncClient) -> list[httpx.Response]:
        asking = [asyncio.create_task(client.get(url)) for _ in range(WAITING_MAX)]
        await asyncio.to_thread(harness.wait_for_waiting, WAITING_MAX)
        refused = await client.get(url)
        harness.release.set()
        while not all(task.done() for task in asking):
            harness.clock.now += LOOKUP_SECONDS
            await asyncio.sleep(0)
        return [refused, *[task.result() for task in asking]]

    with (
        control_socket(tmp_path / "job.sock", harness.handler),
        harness.running("state") as lookup,
    ):
        refused, *answers = with_client(send, settings(tmp_path / "job.sock"))
        assert lookup.result(PATIENCE_SECONDS) is not None
    assert (429, "1") == (refused.status_code, refused.headers["retry-after"])
    assert [200] * WAITING_MAX == [answer.status_code for answer in answers]


def test_next_lookup_runs_after_a_cancelled_one(harness: Harness) -> None:
    def cancel() -> None:
        raise CancelledError("the caller closed the connection")

    harness.reader.work = cancel
    with pytest.raises(CancelledError):
        harness.read("state")
    harness.reader.work = lambda: None
    assert harness.read("state") is not None


@pytest.mark.parametrize("reason", ["the backlog is read", "the longest delay is over"])
def test_rows_are_not_counted_while_a_backlog_is_read(
    reason: str, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job.control.control_handler.COUNT_PAUSE_SECONDS", 0.001)
    harness.runner.last_batch = behind = batch(
        left=side(records=100, end_offsets={0: 100}, latest_offsets={0: 201})
    )
    assert behind.has_backlog
    counted = threading.Event()
    harness.reader.work = counted.set
    harness.handler.start()
    try:
        wait_until(
            lambda: harness.runner.status_calls > 20,
            PATIENCE_SECONDS,
            "the handler has polled often",
        )
        assert not counted.is_set()
        if reason == "the backlog is read":
            harness.runner.last_batch = batch(
                left=side(records=100, end_offsets={0: 101}, latest_offsets={0: 201})
            )
        else:
            harness.clock.now += COUNT_LATEST_SECONDS
        assert counted.wait(PATIENCE_SECONDS)
    finally:
        harness.handler.close()


def test_other_calls_do_not_wait_for_the_pause(harness: Harness) -> None:
    harness.read("state")

    for call in ("plan", "progress", "failures", "validate"):
        assert harness.read(call) is not None
