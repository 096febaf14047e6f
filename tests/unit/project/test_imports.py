"""Modules that a quick command does not import: each of them would make the command slower.

Commands without Spark, and the test helper for users, do not need pyspark at all.
"""

import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest

from tests.unit.specs import spec_yaml

ROOT = Path(__file__).parents[3]

# `validate` spends about half a second in Python, most of it for imports. Of that time, asyncio
# (which pydantic-settings imports) would take 60 ms more, job.process with structlog and rich 75,
# job.semantics 65, pyspark some hundred.
HEAVY = {
    "asyncio",
    "confluent_kafka",
    "cryptography",
    "fastapi",
    "fastavro",
    "google.protobuf",
    "grpc_tools",
    "job.plan.explain",
    "job.process",
    "job.semantics",
    "openlineage",
    "psutil",
    "pydantic_settings",
    "pyspark",
    "rich",
    "structlog",
}
LIST_MODULES = """
import sys
from job.__main__ import app
app(["validate", sys.argv[1]], standalone_mode=False)
print(*sys.modules)
"""


@pytest.mark.processes
def test_validate_imports_nothing_that_it_does_not_need() -> None:
    command = [sys.executable, "-c", LIST_MODULES, str(ROOT / "join.example.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    valid, modules = done.stdout.splitlines()

    assert valid.endswith("is valid")
    assert set() == HEAVY & set(modules.split())
    assert "job.plan.planner" in modules.split()


WITHOUT_SPARK = """
import sys
for package in ("pyspark", "py4j"):
    sys.modules[package] = None  # as if it were not installed
"""
EXAMPLE = str(ROOT / "join.example.yaml")


def run_without_spark(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", WITHOUT_SPARK + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_package_requires_pyspark_only_for_the_job() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    with_spark = {
        name
        for name, packages in (
            ("", project["dependencies"]),
            *project["optional-dependencies"].items(),
        )
        if any(package.startswith("pyspark") for package in packages)
    }
    assert {"job"} == with_spark


@pytest.mark.processes
def test_command_without_spark_runs_without_pyspark() -> None:
    done = run_without_spark("from job.__main__ import main; main()", "schema")

    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.processes
def test_test_helper_runs_without_pyspark() -> None:
    done = run_without_spark("import streamjoin.testing.plugin, streamjoin.testing.spec")

    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.processes
@pytest.mark.parametrize("command", [["validate"], ["run"], ["state"], ["checkpoint", "verify"]])
def test_command_without_pyspark_names_the_package_and_the_set_up(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMJOIN_JARS", "/nonexistent")  # as before the set-up
    done = run_without_spark("from job.__main__ import main; main()", *command, EXAMPLE)

    assert 1 == done.returncode
    remedy = "run `pip install 'streamjoin[job]'`, then `make setup`"
    assert f"pyspark is not installed: {remedy}" in done.stderr
    assert "Traceback" not in done.stderr
    assert (command == ["validate"]) == ("`streamjoin validate --structure` checks" in done.stderr)


@pytest.mark.processes
def test_structure_of_a_spec_is_checked_without_pyspark_and_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    wrong = tmp_path / "join.yaml"
    wrong.write_text(spec_yaml(join__type="outer", left__filter="no SQL at all"))
    validate = partial(
        run_without_spark, "from job.__main__ import main; main()", "validate", "--structure"
    )

    done = validate(EXAMPLE)
    assert (0, "") == (done.returncode, done.stderr)
    assert f"the structure of {EXAMPLE} is valid; its SQL was not checked" == done.stdout.strip()
    done = validate(str(wrong))
    assert 2 == done.returncode
    assert "1 problem" in done.stderr
    assert "join.type" in done.stderr
    done = run_without_spark("from job.__main__ import main; main()", "validate", str(wrong))
    assert 2 == done.returncode
    assert "join.type" in done.stderr
