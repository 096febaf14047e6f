"""`streamjoin explain` on the socket of a job."""

import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from job.__main__ import app
from job.protocol.calls import Explain
from job.protocol.control import control_socket
from tests.unit.service.answers import all_answers
from tests.unit.service.builders import SmallJob, status
from tests.unit.specs import spec_yaml


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallJob]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.sock"
        monkeypatch.setenv("STREAMJOIN_SOCKET", str(path))
        small = SmallJob(status())
        small.answers = all_answers()
        with control_socket(path, small):
            yield small


@pytest.fixture
def spec(tmp_path: Path) -> str:
    file = tmp_path / "join.yaml"
    file.write_text(spec_yaml(name="ad_attribution"))
    return str(file)


def test_sentences_are_printed(job: SmallJob, spec: str) -> None:
    since = ["--since", "2026-11-20T10:00:00+01:00"]
    done = CliRunner().invoke(app, ["explain", spec, "--key", "a", "--key", "7", *since])

    assert (0, "The query is PAUSED.\n") == (done.exit_code, done.output)
    at = datetime(2026, 11, 20, 9, tzinfo=UTC)
    assert Explain(key=["a", "7"], limit=20, since=at) == job.last_request


@pytest.mark.usefixtures("job")
def test_answer_is_printed_as_json(spec: str) -> None:
    done = CliRunner().invoke(app, ["explain", spec, "--key", "7", "--json"])

    assert ["The query is PAUSED."] == json.loads(done.output)["sentences"]


@pytest.mark.usefixtures("job")
def test_time_without_an_offset_is_refused(spec: str) -> None:
    done = CliRunner().invoke(app, ["explain", spec, "--key", "7", "--since", "10:00"])

    assert 2 == done.exit_code
    assert "--since: must be ISO-8601 with an offset" in done.stderr


def test_job_of_another_join_is_refused(job: SmallJob, spec: str) -> None:
    job.current = status(name="another")
    done = CliRunner().invoke(app, ["explain", spec, "--key", "7"])

    assert 1 == done.exit_code
    assert "runs the join another, and `name` in this spec is ad_attribution" in done.stderr


def test_missing_job_is_named(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMJOIN_SOCKET", "/tmp/no-job.sock")
    done = CliRunner().invoke(app, ["explain", spec, "--key", "7"])

    assert 1 == done.exit_code
    assert "no job answers on /tmp/no-job.sock" in done.stderr
