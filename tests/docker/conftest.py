"""One stack for all tests of this folder: its start takes half a minute, its build minutes."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamjoin.testing import Broker
from tests.docker.kubernetes import write_schemas
from tests.docker.load import Load
from tests.docker.stack import Stack

# Prefix of its containers, networks and volumes. Those of an earlier run are removed first.
PROJECT = "streamjoin-test"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """The stack with its images built."""
    docker = shutil.which("docker")
    if not docker:
        _refuse("there is no docker here: https://docs.docker.com/engine/install/")
    # `docker info` would do, but older clients do not print its reason.
    for question in (["version", "--format", "{{.Server.Version}}"], ["compose", "version"]):
        answer = subprocess.run([str(docker), *question], capture_output=True, text=True)
        if answer.returncode != 0:
            _refuse(f"`docker {question[0]}` says: {answer.stderr.strip()}")
    stack = Stack(PROJECT, tmp_path_factory.mktemp("stack"))
    stack.compose("--profile", "*", "build")
    return stack


@pytest.fixture(scope="session")
def stack(built: Stack) -> Iterator[Stack]:
    """Kafka, topics, job, service and Prometheus, running the join of the demo."""
    try:
        built.down()
        built.up("prometheus")
        yield built
    finally:
        # Into pytest's folder, which is kept: the containers are not.
        (built.folder / "containers.log").write_text(built.compose("logs", "--no-color"))
        built.down()


@pytest.fixture(scope="session")
def broker(built: Stack) -> Iterator[Broker]:  # noqa: ARG001  # for its images
    """For joins of single tests, with the images that were built."""
    with Broker() as started:
        yield started


@pytest.fixture(scope="session")
def load(stack: Stack) -> Load:
    return Load(stack.kafka)


@pytest.fixture(scope="session")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The schemas of Kubernetes' API, for `conform`."""
    folder = tmp_path_factory.mktemp("kubernetes") / "schemas"
    write_schemas(folder)
    return folder


def _refuse(reason: str) -> None:
    if "EVERY_TEST" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test waits for the images: a download of half a gigabyte."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(900))
