"""Runs of the demo do not disturb each other, remove the files of ended runs, and report an early
end."""

import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.demo import __main__ as demo
from deploy.demo.joins import JOINS, STREAMS, TABLE, DemoJoin
from deploy.demo.screen import Addresses
from deploy.demo.system import Program, System, engine_note, run_folder, spec_file
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


@pytest.mark.parametrize("join", JOINS.values(), ids=JOINS)
def test_spec_can_be_planned_and_has_the_engine_and_what_the_demo_sends(
    tmp_path: Path, join: DemoJoin
) -> None:
    for engine in Engine:
        spec = spec_from_yaml(spec_file(tmp_path, join, engine).read_text(), {})
        plan = join_plan(spec, SQL, state_partitions=2)

        assert engine is plan.engine
        assert join.topics == {"left": spec.left.topic, "right": spec.right.topic}
        assert join.output_topic == spec.output.topic
        assert join.table == plan.table_side
        assert list(join.columns) == list(spec.output.columns)


@pytest.mark.parametrize(
    ("join", "engine", "command"),
    [
        (STREAMS, Engine.MICRO_BATCH, "make run ENGINE=real_time"),
        (STREAMS, Engine.REAL_TIME, "make run"),
        (TABLE, Engine.MICRO_BATCH, "make run DEMO=table ENGINE=real_time"),
    ],
)
def test_run_names_its_engine_and_the_command_for_the_other_one(
    join: DemoJoin, engine: Engine, command: str
) -> None:
    note = engine_note(join, engine)
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
