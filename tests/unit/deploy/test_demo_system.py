"""Runs of the demo do not disturb each other, and remove the files of ended runs."""

from pathlib import Path

import pytest

from deploy.local.demo_system import engine_note, run_folder, spec_file
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
