"""`streamjoin state`: from the running job, otherwise from the checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from job.__main__ import app
from job.checkpoint import cli
from job.errors import ConflictError
from job.protocol.calls import State, StateCount
from job.protocol.control import control_socket
from job.protocol.status import QueryState
from tests.unit.service.answers import ROW, all_answers, key_rows
from tests.unit.service.builders import SmallJob, status
from tests.unit.specs import spec_yaml


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing serves on it yet."""
    path = tmp_path / "job.sock"
    monkeypatch.setenv("STREAMJOIN_SOCKET", str(path))
    return path


@pytest.fixture
def checkpoint_reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Sides and key of each lookup in the checkpoint."""
    reads: list[tuple[Any, ...]] = []

    def read(_plan: object, _settings: object, sides: tuple[str, ...], key: list[str]) -> Any:
        reads.append((sides, key))
        return [key_rows("right")]

    monkeypatch.setattr("job.commands.state.create_plan", lambda spec: spec)
    monkeypatch.setattr(cli, "state", read)
    return reads


def small_job(state: QueryState = QueryState.RUNNING, **fields: Any) -> SmallJob:
    job = SmallJob(status(state, **fields))
    job.answers = all_answers()
    return job


def state(tmp_path: Path, *arguments: str) -> Result:
    spec = tmp_path / "join.yaml"
    spec.write_text(spec_yaml(name="ad_attribution"))
    return CliRunner().invoke(app, ["state", str(spec), *arguments])


def test_running_job_returns_the_rows_of_a_key(socket: Path, tmp_path: Path) -> None:
    job = small_job()
    with control_socket(socket, job):
        shown = state(tmp_path, "--side", "right", "--key", "a", "--key", "7")
        as_json = state(tmp_path, "--key", "7", "--json")
        first_request = State(side="right", key=["a", "7"], limit=100)
        job.answers["state"] = key_rows("left", ROW, more=True)
        cut_off = state(tmp_path, "--side", "left", "--key", "7")

    assert 0 == shown.exit_code, shown.stderr
    first, row = shown.stdout.splitlines()
    assert "1 left row with key ['7'] in state after batch 7" == first
    assert 17 == json.loads(row)["offset"]
    assert [17, 17] == [each["rows"][0]["offset"] for each in json.loads(as_json.stdout)]
    assert first_request.model_copy(update={"side": "left", "key": ["7"]}) == job.last_request
    assert cut_off.stdout.startswith("more than 1 left row")


def test_running_job_counts_the_rows_without_a_key(socket: Path, tmp_path: Path) -> None:
    job = small_job()
    with control_socket(socket, job):
        shown = state(tmp_path)

    assert StateCount() == job.last_request
    assert "left state partition 0: 100 rows, 30 without a match so far" in shown.stdout
    assert "right state partition 1: 90 rows\n" in shown.stdout


def test_job_that_cannot_read_its_state_reports_why(
    socket: Path, tmp_path: Path, checkpoint_reads: list[Any]
) -> None:
    job = small_job(QueryState.STARTING)
    job.answers["state"] = ConflictError("there is no state: no batch has ended", allowed=[])  # type: ignore[assignment]
    with control_socket(socket, job):
        refused = state(tmp_path, "--key", "7")

    assert 1 == refused.exit_code
    assert "there is no state: no batch has ended" in refused.stderr
    assert [] == checkpoint_reads


@pytest.mark.parametrize(
    "job", [None, small_job(QueryState.STOPPED), small_job(name="another_join")]
)
def test_checkpoint_is_read_if_the_query_does_not_run(
    job: SmallJob | None, socket: Path, tmp_path: Path, checkpoint_reads: list[Any]
) -> None:
    if job is None:
        shown = state(tmp_path, "--side", "right", "--key", "7")
    else:
        with control_socket(socket, job):
            shown = state(tmp_path, "--side", "right", "--key", "7")

    assert (0, [(("right",), ["7"])]) == (shown.exit_code, checkpoint_reads), shown.stderr
    assert "0 right rows with key ['7'] in state after batch 7\n" == shown.stdout
