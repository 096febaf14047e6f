"""The JSON that commands print for scripts."""

import json
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from job.__main__ import app
from job.checkpoint import cli
from job.commands import spec_file
from job.logs import log_to_stderr
from job.redaction import Redaction
from job.spec.spec import spec_from_yaml
from tests.sql_worker import SQL
from tests.unit.specs import spec_yaml


def test_problems_of_a_spec_are_json_on_stdout_and_text_on_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAY", "s3cret")
    file = tmp_path / "join.yaml"
    for text, problems in (
        (spec_yaml(), []),
        (spec_yaml(left__watermark_delay="${DELAY}"), ["left.watermark_delay"]),
    ):
        file.write_text(text)
        done = CliRunner().invoke(app, ["validate", "--structure", "--json", str(file)])

        facts = json.loads(done.stdout)
        assert (not problems, False) == (facts["valid"], facts["sql_checked"])
        assert problems == [each["field"] for each in facts["problems"]]
        assert (2 if problems else 0) == done.exit_code
        assert bool(problems) == ("1 problem\n  left.watermark_delay" in done.stderr)
        assert "s3cret" not in done.output


def test_warnings_are_logged_to_stderr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(*_: object) -> list[cli.Check]:
        structlog.get_logger().warning("event_times_not_read", reason="damaged")
        return []

    monkeypatch.setattr("job.commands.checkpoint.create_plan", lambda _: None)
    monkeypatch.setattr(cli, "verify", verify)
    file = tmp_path / "join.yaml"
    file.write_text(spec_yaml())

    done = CliRunner().invoke(app, ["checkpoint", "verify", "--json", str(file)])

    assert [] == json.loads(done.stdout)
    assert "event_times_not_read" in done.stderr


def test_plan_of_the_job_keeps_the_redaction_of_its_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    redaction = Redaction()
    redaction.add(["hunter2"])
    log_to_stderr(redaction, "json")
    spec_file.plan_with(spec_from_yaml(spec_yaml(), {}), SQL)

    structlog.get_logger().warning("refused", reason="hunter2")

    assert "[redacted]" in capsys.readouterr().err


def test_json_of_a_check_has_the_exit_code_of_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = [cli.Check("logs: complete", True), cli.Check("state: cannot be read", False)]
    monkeypatch.setattr("job.commands.checkpoint.create_plan", lambda _: None)
    monkeypatch.setattr(cli, "verify", lambda *_: checks)
    file = tmp_path / "join.yaml"
    file.write_text(spec_yaml())

    done = CliRunner().invoke(app, ["checkpoint", "verify", "--json", str(file)])
    assert [{"text": each.text, "passed": each.passed} for each in checks] == json.loads(
        done.stdout
    )
    assert 1 == done.exit_code
    done = CliRunner().invoke(app, ["checkpoint", "verify", str(file)])
    assert (1, "ok      logs: complete\nFAILED  state: cannot be read\n") == (
        done.exit_code,
        done.stdout,
    )
