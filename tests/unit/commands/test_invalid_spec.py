"""Every command lists the problems of structure and SQL of a spec together."""

from pathlib import Path

import pytest

from job.commands import spec_file
from job.errors import SpecError
from job.proposal import observed
from job.proposal.observed import Observer
from tests.sql_worker import ROWS, SQL, WorkerOfCommands
from tests.unit.commands.called import streamjoin
from tests.unit.specs import spec_yaml

INVALID = spec_yaml(
    name="Not Valid",
    left__watermark_delay="${DELAY}",
    left__nonsense=1,
    left__filter="nope > 1",
    right__key=["nope"],
    join__type="sideways",
)
FIELDS = {
    *("name", "left.watermark_delay", "left.nonsense", "join.type"),
    *("left.filter", "right.key[0]"),
}


@pytest.fixture
def invalid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(spec_file, "SqlWorker", WorkerOfCommands)
    monkeypatch.setenv("DELAY", "s3cret")
    file = tmp_path / "join.yaml"
    file.write_text(INVALID)
    return file


@pytest.mark.parametrize(
    "command",
    [
        ["validate"],
        ["plan"],
        ["simulate", "--left", "left.jsonl", "--right", "right.jsonl"],
        ["test"],
        ["check"],
        ["run"],
        ["topics", "create"],
        ["checkpoint", "verify"],
        ["dead-letters", "replay"],
    ],
    ids=" ".join,
)
def test_command_lists_problems_of_structure_and_sql(command: list[str], invalid: Path) -> None:
    done = streamjoin(*command, invalid)

    assert 2 == done.exit_code
    assert f"{len(FIELDS)} problems" in done.stderr
    assert [field for field in FIELDS if f"  {field}: " not in done.stderr] == []
    assert "s3cret" not in done.output


def test_structure_alone_is_checked_without_sql(invalid: Path) -> None:
    done = streamjoin("validate", "--structure", invalid)

    assert "4 problems" in done.stderr
    assert "left.filter" not in done.stderr


def test_proposal_of_init_has_problems_of_structure_and_sql(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observed, "spec_text", lambda *_: INVALID)
    observer = Observer({"DELAY": "s3cret"}, SQL, ROWS)

    with pytest.raises(SpecError) as refused:
        observer.plan(None)  # type: ignore[arg-type]  # the text is that of the patch

    assert FIELDS == {problem.field for problem in refused.value.problems}
