"""Modules that a quick command does not import: each of them would make the command slower."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# `validate` answers in half a second, most of it imports. Of that time, asyncio (which
# pydantic-settings imports) would take 60 ms more, job.process with structlog and rich 75,
# job.semantics 65, pyarrow and pyspark some hundred each.
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
    "pyarrow",
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
