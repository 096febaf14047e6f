"""deploy/cluster/docker-compose.yml: driver, master and workers in containers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.load import Load
from tests.docker.stack import Stack


class ClusterStack(Stack):
    files = (*Stack.files, "deploy/cluster/docker-compose.yml")
    jvms = (*Stack.jvms, "spark-master", "spark-worker-1", "spark-worker-2")


@pytest.fixture
def cluster(built: Stack, tmp_path: Path) -> Iterator[Stack]:  # noqa: ARG001  # for its images
    stack = ClusterStack("streamjoin-test-cluster", tmp_path)
    try:
        stack.down()
        stack.up("service")
        yield stack
    finally:
        (tmp_path / "containers.log").write_text(stack.compose("logs", "--no-color"))
        stack.down()


def executors(cluster: Stack, worker: str) -> int:
    return int(cluster.inside(worker, "grep -l '[.]CoarseGrained' /proc/[0-9]*/cmdline | wc -l"))


def test_worker_that_dies_takes_no_row_with_it(cluster: Stack) -> None:
    load = Load(cluster.kafka)
    load.send(20)
    assert "" == load.wrong_rows(cluster)
    assert {1} == {executors(cluster, f"spark-worker-{number}") for number in (1, 2)}

    load.send(20)
    cluster.crash("spark-worker-1")
    load.send(20)
    assert "" == load.wrong_rows(cluster)
