"""The checkpoint on a real HDFS."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from tests.integration.hdfs import Hdfs
from tests.integration.jobs import Job
from tests.integration.jvms import SharedJvm
from tests.integration.machines import Machine
from tests.integration.pairs import Pairs


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with Hdfs(tmp_path_factory.mktemp("hdfs")) as started:
        yield started


@pytest.fixture
def jvm(tmp_path: Path) -> Iterator[SharedJvm]:
    """A JVM of the machine, for its job and its commands. It is killed with the first job."""
    folder = tmp_path / "jvm"
    folder.mkdir()
    with SharedJvm(folder) as shared:
        yield shared


@pytest.mark.timeout(900)  # two starts of a job
def test_killed_job_continues_from_hdfs_on_another_machine_and_waits_for_a_dead_namenode(
    kafka: EmbeddedKafka,
    hdfs: Hdfs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jvm: SharedJvm,
) -> None:
    place = f"{hdfs.url}/user/join"
    pairs = Pairs(kafka, "hdfs", tmp_path, delivery="exactly_once", checkpoint=place)
    pairs.create_topics()

    machine = Machine(tmp_path / "one", monkeypatch)
    with Job(pairs.spec(), machine.folder, jvm) as job:
        pairs.produce(range(3))
        job.wait_for_offsets(left=3, right=3)
        refused = job.command("checkpoint", "verify", str(job.spec_file))
        assert f"{place} is in use by the job with process {job.process.pid}" in refused.stderr
        job.ask("pause")
        job.wait_for_state("PAUSED")
        pairs.produce(range(3, 6))
        job.kill_tree()
    assert list(machine.scratch.iterdir())
    shutil.rmtree(machine.folder)

    machine = Machine(tmp_path / "two", monkeypatch)
    with Job(pairs.spec(), machine.folder, jvm) as job:
        job.wait_for_state("PAUSED")
        job.ask("resume")
        job.wait_for_offsets(left=6, right=6)

        hdfs.kill_namenode()
        pairs.produce(range(6, 9))
        failure = job.wait_for_state("RESTARTING").last_failure
        assert failure is not None
        assert "lost the checkpoint's file system" in failure.message
        # The same part of the message for a refused and for a broken connection.
        assert f":{hdfs.port}" in failure.message
        hdfs.start_namenode()
        job.wait_for_offsets(left=9, right=9)
        assert 0 == job.terminate()
    assert list(range(9)) == pairs.numbers()

    spec, backup = str(job.spec_file), f"{hdfs.url}/backup"
    assert "state: 18 rows read" in job.command("checkpoint", "verify", spec).stdout
    assert f"copied to {backup}" in job.command("checkpoint", "backup", spec, backup).stdout
    assert f"restored from {backup}" in job.command("checkpoint", "restore", spec, backup).stdout
    assert "1 left row with key" in job.command("state", spec, "--key", "7").stdout
