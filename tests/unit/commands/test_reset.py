"""`streamjoin reset` on the socket of a small job, and through the service."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from job.__main__ import app
from job.protocol.calls import Command
from job.protocol.control import control_socket
from job.protocol.reports import ResetReport
from job.protocol.status import QueryState
from job.spec.start_positions import StartPositions
from tests.unit.service.browser import serving_page
from tests.unit.service.builders import NOW, SmallJob, batch, just_polled, status_after
from tests.unit.specs import spec_yaml

OLD = "/checkpoints/aside-1"


class ResettingJob(SmallJob):
    def __init__(self) -> None:
        super().__init__(status_after(batch(), state=QueryState.STOPPED, brokers=just_polled()))
        self.outcome: dict[str, Any] = {"completed_at": NOW, "old_checkpoint": OLD}

    def command(self, command: Command) -> None:
        super().command(command)
        report = ResetReport(
            requested_by=command.by,
            requested_at=NOW,
            starts=self.last_command.starts,
            **self.outcome,
        )
        self.current = self.current.model_copy(update={"last_reset": report})


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ResettingJob]:
    path = tmp_path / "job.sock"
    monkeypatch.setenv("STREAMJOIN_SOCKET", str(path))
    small = ResettingJob()
    with control_socket(path, small):
        yield small


def reset(tmp_path: Path, *arguments: str, stdin: str | None = None) -> Result:
    spec = tmp_path / "join.yaml"
    spec.write_text(spec_yaml(name="ad_attribution"))
    return CliRunner().invoke(app, ["reset", str(spec), *arguments], input=stdin)


def test_reset_starts_both_sides_again_and_names_the_old_checkpoint(
    job: ResettingJob, tmp_path: Path
) -> None:
    done = reset(tmp_path, "--start", "earliest", "--yes", "--reason", "deleted topic")

    assert 0 == done.exit_code, done.stderr
    assert "the rows in its state are not joined" in done.stdout
    assert f"the old checkpoint is in {OLD}" in done.stdout
    assert "continue with `streamjoin resume`" in done.stdout
    assert StartPositions(left="earliest", right="earliest") == job.last_command.starts
    assert ("deleted topic", "user") == (
        job.last_command.reason,
        job.last_command.by.partition(":")[0],
    )
    as_json = reset(tmp_path, "--start", "latest", "--yes", "--json")
    assert OLD == json.loads(as_json.stdout)["old_checkpoint"]


def test_reset_to_offsets_keeps_the_other_partitions(job: ResettingJob, tmp_path: Path) -> None:
    done = reset(tmp_path, "--left", "0=70,1=80", "--right", "1=105", "--yes")

    assert 0 == done.exit_code, done.stderr
    starts = StartPositions(left={0: 70, 1: 80}, right={0: 98, 1: 105})
    assert starts == job.last_command.starts
    unknown = reset(tmp_path, "--left", "7=70", "--yes")
    assert 1 == unknown.exit_code
    assert "left.7: unknown partition" in unknown.stderr


def test_nothing_is_reset_without_a_confirmation(
    job: ResettingJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = reset(tmp_path, "--start", "earliest")
    assert 1 == refused.exit_code
    assert "nothing was reset: repeat the command with --yes" in refused.stderr

    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("job.commands.reset.sys", terminal)
    assert 1 == reset(tmp_path, "--start", "earliest", stdin="n\n").exit_code
    assert [] == job.commands
    confirmed = reset(tmp_path, "--start", "earliest", stdin="y\n")
    assert 0 == confirmed.exit_code, confirmed.stderr
    assert "Reset ad_attribution? [y/N]" in confirmed.stderr


def test_reset_of_a_running_query_is_refused_before_the_prompt(
    job: ResettingJob, tmp_path: Path
) -> None:
    job.current = job.current.model_copy(update={"state": QueryState.RUNNING})

    refused = reset(tmp_path, "--start", "earliest")

    assert 1 == refused.exit_code
    assert "the query is RUNNING, and only a STOPPED query can be reset" in refused.stderr


def test_failed_reset_exits_1_with_its_reason(job: ResettingJob, tmp_path: Path) -> None:
    job.outcome["error"] = "the checkpoint cannot be moved"

    failed = reset(tmp_path, "--start", "earliest", "--yes")

    assert 1 == failed.exit_code
    assert "reset was accepted, and has failed: the checkpoint cannot be moved" in failed.stderr


def test_reset_that_is_not_completed_in_time_exits_1(job: ResettingJob, tmp_path: Path) -> None:
    job.outcome = {}

    late = reset(tmp_path, "--start", "earliest", "--yes", "--wait", "0.1")

    assert 1 == late.exit_code
    assert "it is not completed after 0.1 s: look again with" in late.stderr
    accepted = reset(tmp_path, "--start", "earliest", "--yes", "--wait", "0")
    assert "the reset of ad_attribution was accepted" in accepted.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "either --start, or --left and --right with offsets, is required"),
        (("--start", "latest", "--left", "0=1"), "either --start, or --left and --right"),
        (("--start", "yesterday"), "--start: Value error, must be earliest, latest or a time"),
        (("--left", "earliest"), "--left: must be PARTITION=OFFSET,…, e.g. 0=90,1=75 (written: "),
        (("--left", f"0={'9' * 5_000}"), "--left: must be PARTITION=OFFSET"),
        (("--left", "0=9999999999999999999"), "--left: Input should be less than or equal to"),
    ],
)
@pytest.mark.usefixtures("job")
def test_wrong_start_exits_2(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    wrong = reset(tmp_path, *arguments, "--yes")

    assert 2 == wrong.exit_code
    assert message in " ".join(wrong.stderr.replace("│", " ").split())


def test_service_resets_as_the_socket(job: ResettingJob, tmp_path: Path) -> None:
    with serving_page(tmp_path / "job.sock") as url:
        by_name = reset(tmp_path, "--start", "earliest", "--yes", "--url", url)
        assert 0 == by_name.exit_code, by_name.stderr
        assert StartPositions(left="earliest", right="earliest") == job.last_command.starts
        by_offset = reset(tmp_path, "--left", "0=70", "--yes", "--url", url, "--reason", "a & b")
    assert 0 == by_offset.exit_code, by_offset.stderr
    assert {0: 70, 1: 100} == job.last_command.starts.left
    assert "a & b" == job.last_command.reason
