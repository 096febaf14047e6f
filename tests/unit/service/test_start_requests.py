"""POST reset and PATCH offsets: confirmation, start positions and their errors."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from job.protocol.reports import SideOffsets
from job.protocol.status import JobStatus, QueryState
from job.spec.start_positions import StartPositions
from tests.unit.service.builders import SmallJob, batch, broker_report, serving, status_after
from tests.unit.service.calls import call, problem, settings

NAME = "ad_attribution"
READ = {"left": {0: 90, 1: 100}, "right": {0: 98, 1: 105}}
STOPPED = status_after(batch(), state=QueryState.STOPPED)


def sent(
    path: Path, method: str, url: str, body: Any, given: JobStatus = STOPPED
) -> tuple[httpx.Response, SmallJob]:
    allowed = None if given.state is QueryState.STOPPED else ("pause", "stop")
    with serving(path, given, allowed=allowed) as job:
        return call(method, url, settings(path), json=body), job


def reset(path: Path, given: JobStatus = STOPPED, **body: Any) -> tuple[httpx.Response, SmallJob]:
    return sent(path, "POST", "/v1/query/reset", {"confirm": NAME, **body}, given)


def patch(path: Path, given: JobStatus = STOPPED, **body: Any) -> tuple[httpx.Response, SmallJob]:
    return sent(path, "PATCH", "/v1/query/offsets", {"confirm": NAME, **body}, given)


@pytest.mark.parametrize("start", ["earliest", "latest", "2026-01-31T12:00:00Z"])
def test_reset_starts_both_sides_at_the_requested_position(path: Path, start: str) -> None:
    answer, job = reset(path, start=start)

    assert (202, "STOPPED") == (answer.status_code, answer.json()["state"])
    assert [("reset", "http:127.0.0.1")] == job.commands
    assert StartPositions(left=start, right=start) == job.last_command.starts


def test_reset_can_start_each_side_at_another_position(path: Path) -> None:
    _, job = reset(path, left="latest", right="2026-01-31T12:00:00+01:00")

    assert (
        StartPositions(left="latest", right="2026-01-31T12:00:00+01:00") == job.last_command.starts
    )


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"left": "earliest"},
        {"right": "earliest"},
        {"start": "earliest", "left": "earliest"},
        {"start": "earliest", "left": "earliest", "right": "latest"},
        {"start": "yesterday"},
        {"start": 5},
        {"start": "earliest", "also": "this"},
    ],
)
def test_reset_without_valid_start_positions_is_refused(path: Path, body: dict[str, Any]) -> None:
    answer, job = reset(path, **body)

    assert 422 == problem(answer)["status"]
    assert [] == job.commands


@pytest.mark.parametrize("call_of", [reset, patch])
@pytest.mark.parametrize("name", ["", "other", "AD_ATTRIBUTION"])
def test_other_name_is_no_confirmation(path: Path, call_of: Any, name: str) -> None:
    positions = {"start": "latest"} if call_of is reset else {"left": {"0": 50}}
    answer, job = call_of(path, **positions, confirm=name)

    assert (422, "confirm: must be the name of this query, ad_attribution") == (
        problem(answer)["status"],
        problem(answer)["detail"],
    )
    assert [] == job.commands


@pytest.mark.parametrize("call_of", [reset, patch])
def test_query_that_is_not_stopped_gets_no_new_checkpoint(path: Path, call_of: Any) -> None:
    positions = {"start": "latest"} if call_of is reset else {"left": {"0": 50}}
    answer, job = call_of(path, status_after(batch()), **positions)

    assert (409, ["pause", "stop"]) == (problem(answer)["status"], problem(answer)["allowed"])
    assert [] == job.commands


def test_omitted_partitions_keep_their_read_offset(path: Path) -> None:
    answer, job = patch(path, left={"0": 50})

    assert 202 == answer.status_code
    assert ("reset", StartPositions(left={0: 50, 1: 100}, right=READ["right"])) == (
        job.commands[0][0],
        job.last_command.starts,
    )


def test_offsets_of_both_sides_can_be_altered(path: Path) -> None:
    _, job = patch(path, left={"0": 10, "1": 105}, right={"0": 0})

    assert StartPositions(left={0: 10, 1: 105}, right={0: 0, 1: 105}) == job.last_command.starts


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"left": {"7": 5}}, "left.7: unknown partition; the topic has 0, 1"),
        (
            {"right": {"0": 101}},
            "right.0: offset 101 is out of range; the topic has 0 to 100 (the next to be written)",
        ),
        (
            {"left": {"1": 39}},
            "left.1: offset 39 is out of range; the topic has 40 to 105 (the next to be written)",
        ),
    ],
)
def test_offset_out_of_range_is_refused(path: Path, body: dict[str, Any], detail: str) -> None:
    answer, job = patch(path, **body)

    assert (422, detail) == (problem(answer)["status"], problem(answer)["detail"])
    assert [] == job.commands


@pytest.mark.parametrize(
    "body",
    [{}, {"left": {}}, {"left": {"0": -1}}, {"left": {"x": 1}}, {"left": {"0": "latest"}}],
)
def test_invalid_offsets_are_refused(path: Path, body: dict[str, Any]) -> None:
    answer, job = patch(path, **body)

    assert (422, "urn:streamjoin:problem:invalid_request") == (
        problem(answer)["status"],
        problem(answer)["type"],
    )
    assert [] == job.commands


def test_side_without_read_offsets_needs_all_partitions(path: Path) -> None:
    unread = SideOffsets(topic="clicks", earliest={0: 0, 1: 0}, latest={0: 9, 1: 9})
    given = status_after(batch(), state=QueryState.STOPPED, brokers=broker_report(right=unread))

    for body in ({"left": {"0": 50}}, {"left": {"0": 50}, "right": {"0": 1}}):
        answer, job = patch(path, given, **body)
        assert problem(answer)["detail"].startswith("right: the read offset of partition ")
        assert [] == job.commands
    _, job = patch(path, given, right={"0": 1, "1": 2})
    assert StartPositions(left=READ["left"], right={0: 1, 1: 2}) == job.last_command.starts


def test_both_sides_are_required_without_a_report_of_the_brokers(path: Path) -> None:
    given = status_after(batch(), state=QueryState.STOPPED, brokers=None)

    answer, _ = patch(path, given, left={"0": 50})
    assert problem(answer)["detail"].startswith(
        "right: the read offsets are unknown: set an offset"
    )
    _, job = patch(path, given, left={"0": 50}, right={"0": 60})
    assert StartPositions(left={0: 50}, right={0: 60}) == job.last_command.starts


def test_offsets_of_a_side_with_several_topics_are_refused(path: Path) -> None:
    several = STOPPED.model_copy(update={"topics": {"left": ["eu", "us"]}})
    answer, job = patch(path, several, left={"0": 10})

    assert "the left side can read several topics" in problem(answer)["detail"]
    assert [] == job.commands
