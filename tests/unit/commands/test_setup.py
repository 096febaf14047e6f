"""`streamjoin setup`; tests/installation runs it from the wheel."""

import pytest
from typer.testing import CliRunner

from job import class_archive
from job.__main__ import app
from job.errors import SetupError
from job.installation import compiler, jars, java


def test_unknown_set_of_jars_is_refused_with_the_known_ones() -> None:
    result = CliRunner().invoke(app, ["setup", "s4"])

    assert 1 == result.exit_code
    assert "unknown set of jars: s4. Sets: spark, kafka, " in result.stderr


def test_machine_is_set_up_without_a_class_archive_that_cannot_be_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def create(_: object) -> None:
        raise SetupError("the disk is full")

    monkeypatch.setattr(java, "tried_java", java.found_java)
    monkeypatch.setattr(jars, "sets_of_all", lambda: ())
    monkeypatch.setattr(jars, "check_job_jars", lambda _: None)
    monkeypatch.setattr(compiler, "provide_classes", lambda _: None)
    monkeypatch.setattr(class_archive, "is_current", lambda _: False)
    monkeypatch.setattr(class_archive, "create", create)

    result = CliRunner().invoke(app, ["setup"])

    assert 0 == result.exit_code
    assert "The class archive was not created: " in result.stderr
    assert "the disk is full" in result.stderr
    assert "Streamjoin is set up in " in result.stdout
