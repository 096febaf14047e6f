"""The same job on a cluster: its executors run, and die, as processes of their own."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from tests.faults.faulty_job import FAILPOINTS, FaultyJob
from tests.integration.clusters import HOST, Cluster
from tests.integration.jobs import START_SECONDS
from tests.integration.pairs import Pairs
from tests.polling import wait_until
from tests.processes import has_ended

BLOCK = 1_000

# A start for each; on two idle cores it takes 15 s until the first result.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers of one core; what they run heeds the failpoint of this folder."""
    folder = tmp_path_factory.mktemp("cluster")
    failpoint = {"PYTHONPATH": str(FAILPOINTS), "STREAMJOIN_TEST_FAILPOINT": str(folder / "armed")}
    with Cluster(folder, failpoint) as started:
        started.add_workers(2)
        yield started


@pytest.fixture
def pairs(kafka: EmbeddedKafka, tmp_path: Path) -> Pairs:
    made = Pairs(kafka, f"cluster{abs(hash(tmp_path)) % 10**8}", tmp_path, delivery="exactly_once")
    made.create_topics()
    return made


def job_on(cluster: Cluster, spec: str, folder: Path, more: Mapping[str, str] = {}) -> FaultyJob:
    """All see the folder here, as they would a file system that is mounted on each machine."""
    environment = {
        "STREAMJOIN_SPARK_MASTER": cluster.url,
        "STREAMJOIN_CHECKPOINT_IS_SHARED": "true",
        "SPARK_LOCAL_IP": HOST,
        **more,
    }
    job = FaultyJob(spec, folder, environment)
    job.failpoint = cluster.folder / "armed"
    return job


# How many transactions the task that is run again has found committed, so far.
POINTS = {"before_commit": 0, "after_commit": 1}


def test_worker_killed_in_mid_batch_and_then_the_driver_lose_and_repeat_nothing(
    cluster: Cluster, pairs: Pairs, tmp_path: Path
) -> None:
    with job_on(cluster, pairs.spec(), tmp_path) as job:
        job.wait_for_state("RUNNING")
        pairs.produce(range(BLOCK))
        job.wait_for_offsets(left=BLOCK, right=BLOCK)
        for number, (point, skipped) in enumerate(POINTS.items(), start=1):
            cluster.wait_for_executors(2)
            job.arm("kill", point)
            pairs.produce(range(number * BLOCK, (number + 1) * BLOCK))
            job.wait_for_failpoint()
            status = job.wait_for_offsets(left=(number + 1) * BLOCK, right=(number + 1) * BLOCK)
            assert 0 == status.totals.restarts, "the task is run again, not the query"
            assert skipped == status.totals.transactions["skipped"], point
            assert list(range((number + 1) * BLOCK)) == pairs.numbers(), point
            cluster.add_workers(1)

        executors = cluster.executors()
        job.kill()
        wait_until(lambda: all(map(has_ended, executors)), START_SECONDS, "executors have ended")
        job.start()
        job.wait_for_state("RUNNING")
        pairs.produce(range(3 * BLOCK, 4 * BLOCK))
        job.wait_for_offsets(left=4 * BLOCK, right=4 * BLOCK)
        assert 0 == job.terminate()
    assert list(range(4 * BLOCK)) == pairs.numbers()


def test_checkpoint_that_executors_do_not_share_is_refused(
    cluster: Cluster, pairs: Pairs, tmp_path: Path
) -> None:
    unsaid = {"STREAMJOIN_CHECKPOINT_IS_SHARED": "false"}
    with job_on(cluster, pairs.spec(), tmp_path, unsaid) as job:
        assert "say STREAMJOIN_CHECKPOINT_IS_SHARED=true" in refusal(job, "checkpoint")
        assert 1 == job.terminate()
    assert not (tmp_path / "checkpoint" / "query").exists()


def refusal(job: FaultyJob, code: str) -> str:
    failure = job.wait_for_state("FAILED").last_failure
    assert failure is not None
    assert code == failure.code
    return failure.message
