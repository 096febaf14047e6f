"""PATCH offsets and POST reset: with the query's name, and only to where there is something."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from job.join_spec.start_positions import StartPositions
from job.protocol.reports import SideOffsets
from job.protocol.status import JobStatus, QueryState
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
def test_reset_begins_both_sides_where_it_is_told(path: Path, start: str) -> None:
    answer, job = reset(path, start=start)

    assert (202, "STOPPED") == (answer.status_code, answer.json()["state"])
    assert [("reset", "http:127.0.0.1")] == job.commands
    assert StartPositions(left=start, right=start) == job.starts


def test_reset_may_begin_each_side_elsewhere(path: Path) -> None:
    _, job = reset(path, left="latest", right="2026-01-31T12:00:00+01:00")

    assert StartPositions(left="latest", right="2026-01-31T12:00:00+01:00") == job.starts


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
def test_a_reset_that_does_not_say_where_to_begin_is_refused(
    path: Path, body: dict[str, Any]
) -> None:
    answer, job = reset(path, **body)

    assert 422 == problem(answer)["status"]
    assert [] == job.commands


@pytest.mark.parametrize("call_of", [reset, patch])
@pytest.mark.parametrize("name", ["", "other", "AD_ATTRIBUTION"])
def test_another_name_is_no_confirmation(path: Path, call_of: Any, name: str) -> None:
    where = {"start": "latest"} if call_of is reset else {"left": {"0": 50}}
    answer, job = call_of(path, **where, confirm=name)

    assert (422, "this query is ad_attribution: confirm with exactly its name") == (
        problem(answer)["status"],
        problem(answer)["detail"],
    )
    assert [] == job.commands


@pytest.mark.parametrize("call_of", [reset, patch])
def test_a_query_that_is_not_stopped_is_not_begun_anew(path: Path, call_of: Any) -> None:
    where = {"start": "latest"} if call_of is reset else {"left": {"0": 50}}
    answer, job = call_of(path, status_after(batch()), **where)

    assert (409, ["pause", "stop"]) == (problem(answer)["status"], problem(answer)["allowed"])
    assert [] == job.commands


def test_offsets_that_are_left_out_keep_what_was_read(path: Path) -> None:
    answer, job = patch(path, left={"0": 50})

    assert 202 == answer.status_code
    assert ("reset", StartPositions(left={0: 50, 1: 100}, right=READ["right"])) == (
        job.commands[0][0],
        job.starts,
    )


def test_offsets_of_both_sides_can_be_altered(path: Path) -> None:
    _, job = patch(path, left={"0": 10, "1": 105}, right={"0": 0})

    assert StartPositions(left={0: 10, 1: 105}, right={0: 0, 1: 105}) == job.starts


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"left": {"7": 5}}, "left.7: the topic has the partitions 0, 1, and no other"),
        (
            {"right": {"0": 101}},
            "right.0: offset 101 is not in the topic, which holds 0 to 100, the next to be written",
        ),
        (
            {"left": {"1": 39}},
            "left.1: offset 39 is not in the topic, which holds 40 to 105, the next to be written",
        ),
    ],
)
def test_an_offset_that_is_not_in_the_topic_is_refused(
    path: Path, body: dict[str, Any], detail: str
) -> None:
    answer, job = patch(path, **body)

    assert (422, detail) == (problem(answer)["status"], problem(answer)["detail"])
    assert [] == job.commands


@pytest.mark.parametrize(
    "body",
    [{}, {"left": {}}, {"left": {"0": -1}}, {"left": {"x": 1}}, {"left": {"0": "latest"}}],
)
def test_offsets_that_are_none_are_refused(path: Path, body: dict[str, Any]) -> None:
    answer, job = patch(path, **body)

    assert (422, "urn:streamjoin:problem:invalid_request") == (
        problem(answer)["status"],
        problem(answer)["type"],
    )
    assert [] == job.commands


def test_a_side_of_which_nothing_was_read_must_be_said_in_full(path: Path) -> None:
    unread = SideOffsets(topic="clicks", earliest={0: 0, 1: 0}, latest={0: 9, 1: 9})
    given = status_after(batch(), state=QueryState.STOPPED, brokers=broker_report(right=unread))

    for body in ({"left": {"0": 50}}, {"left": {"0": 50}, "right": {"0": 1}}):
        answer, job = patch(path, given, **body)
        assert problem(answer)["detail"].startswith("right: what was read of partition ")
        assert [] == job.commands
    _, job = patch(path, given, right={"0": 1, "1": 2})
    assert StartPositions(left=READ["left"], right={0: 1, 1: 2}) == job.starts


def test_without_any_word_of_the_brokers_offsets_must_be_said_in_full(path: Path) -> None:
    given = status_after(batch(), state=QueryState.STOPPED, brokers=None)

    answer, _ = patch(path, given, left={"0": 50})
    assert problem(answer)["detail"].startswith("right: what was read is not known: say where")
    _, job = patch(path, given, left={"0": 50}, right={"0": 60})
    assert StartPositions(left={0: 50}, right={0: 60}) == job.starts
