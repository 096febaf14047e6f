"""Commands that a message proposes have the file that the user has written."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from job.__main__ import app
from job.check import checker
from job.check.finding import problem
from job.commands.spec_file import report_errors
from job.errors import Problem, SpecError, StreamjoinError, TopicError, with_spec_file
from tests.unit.specs import plan, spec_yaml

PROPOSED = "`streamjoin run SPEC --new-query`"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run `streamjoin run SPEC`", "run `streamjoin run a.yaml`"),
        (
            "`streamjoin checkpoint backup SPEC FOLDER`, then `streamjoin run SPEC`",
            "`streamjoin checkpoint backup a.yaml FOLDER`, then `streamjoin run a.yaml`",
        ),
        ("`streamjoin change OLD_SPEC NEW_SPEC`", "`streamjoin change OLD_SPEC NEW_SPEC`"),
        ("topic SPEC does not exist", "topic SPEC does not exist"),
    ],
)
def test_only_the_file_of_a_command_is_replaced(text: str, expected: str) -> None:
    assert expected == with_spec_file(text, Path("a.yaml"))


def test_command_can_be_pasted_into_a_shell() -> None:
    assert r"`streamjoin run 'my \spec.yaml'`" == with_spec_file(
        "`streamjoin run SPEC`", Path(r"my \spec.yaml")
    )


@pytest.mark.parametrize(
    "error", [TopicError(f"start with {PROPOSED}"), SpecError([Problem("join", None, PROPOSED)])]
)
def test_errors_of_commands_name_the_file(
    error: StreamjoinError, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "join.yaml"
    file.write_text(spec_yaml())
    problems: list[Problem] = []

    with (
        pytest.raises(BaseException, match=str(error.exit_code)),
        report_errors(file, on_problems=problems.extend),
    ):
        raise error

    assert f"`streamjoin run {file} --new-query`" in capsys.readouterr().err
    assert all(f"run {file} " in each.message for each in problems)


def test_findings_of_check_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(*_: Any) -> checker.Report:
        return checker.Report([problem("topics", f"start with {PROPOSED}")])

    monkeypatch.setattr(checker, "check", check)
    monkeypatch.setattr("job.commands.check.plan_with", lambda *_, **__: plan())
    file = tmp_path / "join.yaml"
    file.write_text(spec_yaml())

    for option in ([], ["--json"]):
        done = CliRunner().invoke(app, ["check", *option, str(file)])
        assert f"`streamjoin run {file} --new-query`" in done.stdout
        assert not option or json.loads(done.stdout)["findings"]
