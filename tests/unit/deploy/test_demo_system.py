"""Runs of the demo do not disturb each other, remove the files of ended runs, and report an early
end."""

import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.local import demo
from deploy.local.demo_screen import Addresses
from deploy.local.demo_system import Program, System, engine_note, run_folder, spec_file
from job.errors import QueryError
from job.plan.planner import join_plan
from job.spec.engine import Engine
from job.spec.spec import spec_from_yaml
from tests.sql_worker import SQL


def test_new_run_removes_the_folders_of_those_that_have_ended(tmp_path: Path) -> None:
    with run_folder(tmp_path) as first:
        (first / "job.log").write_text("said")
    assert (first / "job.log").exists()

    with run_folder(tmp_path) as second:
        assert second.resolve() != first.resolve()
        assert not first.exists()
        assert second.exists()


def test_running_run_keeps_its_folder(tmp_path: Path) -> None:
    with run_folder(tmp_path) as first, run_folder(tmp_path) as second:
        assert first.exists()
        assert first.resolve() != second.resolve()


def test_spec_of_each_engine_can_be_planned_and_names_it(tmp_path: Path) -> None:
    for engine in Engine:
        spec = spec_from_yaml(spec_file(tmp_path, engine).read_text(), {})

        assert engine is join_plan(spec, SQL, state_partitions=2).engine


@pytest.mark.parametrize(
    ("engine", "command"),
    [(Engine.MICRO_BATCH, "make run ENGINE=real_time"), (Engine.REAL_TIME, "make run")],
)
def test_run_names_its_engine_and_the_command_for_the_other_one(
    engine: Engine, command: str
) -> None:
    note = engine_note(engine)
    assert note.startswith(f"Engine {engine}")
    assert note.endswith(command)


@pytest.mark.parametrize("ended", ["job", "service"])
def test_program_that_has_ended_is_reported_with_the_end_of_its_log(
    tmp_path: Path, ended: str
) -> None:
    def program(name: str) -> Program:
        code = -9 if name == ended else None
        process: Any = SimpleNamespace(poll=lambda: code, returncode=code)
        (tmp_path / name).write_text(f"the last line of the {name}\n")
        return Program(name, process, tmp_path / name)

    kafka: Any = SimpleNamespace(is_running=True)
    system = System(kafka, program("job"), program("service"), Addresses("", "", ""))

    with pytest.raises(QueryError) as failure:
        system.figures()
    assert f"the {ended} has ended with exit code -9. " in str(failure.value)
    assert str(failure.value).endswith(f"ends with:\nthe last line of the {ended}")


@pytest.mark.parametrize(
    ("arguments", "error", "code", "printed"),
    [
        ([], KeyboardInterrupt(), 0, ""),
        (["--seconds", "9"], KeyboardInterrupt(), demo.INTERRUPTED, ""),
        ([], QueryError("x", retryable=False), 1, "The demo failed: x\n"),
    ],
)
def test_end_of_a_demo_that_has_no_result_has_an_exit_code_and_a_reason(
    arguments: list[str],
    error: BaseException,
    code: int,
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stopped = []

    def run(running: ExitStack, *_: object) -> None:
        running.callback(stopped.append, "all programs")
        raise error

    monkeypatch.setattr(demo, "demo", run)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["demo", *arguments])

    assert code == demo.main()
    assert (printed, ["all programs"]) == (capsys.readouterr().out, stopped)
