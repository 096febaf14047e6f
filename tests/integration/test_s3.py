"""The checkpoint on S3."""

import shutil
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from tests.integration.jobs import Job
from tests.integration.machines import Machine
from tests.integration.pairs import Pairs
from tests.integration.s3 import S3


@pytest.mark.timeout(900)  # two starts of a job
def test_killed_job_continues_from_s3_on_another_machine(
    kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with S3(tmp_path / "s3") as s3:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        pairs = Pairs(
            kafka, "s3", tmp_path, delivery="exactly_once", checkpoint=f"{s3.url}/some/join"
        )
        pairs.create_topics()

        machine = Machine(tmp_path / "one", monkeypatch)
        with Job(pairs.spec(), machine.folder) as job:
            pairs.produce(range(3))
            job.wait_for_offsets(left=3, right=3)
            pairs.produce(range(3, 6))
            job.kill_tree()
        shutil.rmtree(machine.folder)

        machine = Machine(tmp_path / "two", monkeypatch)
        with Job(pairs.spec(), machine.folder) as job:
            pairs.produce(range(6, 9))
            job.wait_for_offsets(left=9, right=9)
            assert 0 == job.terminate()
        assert list(range(9)) == pairs.numbers()
        requests = s3.requests()
        assert requests["PutObject"] > 0
        assert 0 == requests["CopyObject"], "S3 copies renamed objects"
