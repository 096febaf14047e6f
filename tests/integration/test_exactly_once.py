"""Each result once, for consumers of committed records, whichever process is killed and when."""

import re
import shutil
import signal
from pathlib import Path
from zlib import crc32

import pytest
from confluent_kafka.admin import AdminClient

from deploy.local.kafka import EmbeddedKafka
from job.delivery.commit_topic import create_commit_topic_if_used
from job.errors import TopicError
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.security import kafka_access
from job.plan.planner import join_plan
from job.protocol.status import JobStatus
from job.spec.spec import spec_from_yaml
from tests.integration.failpoint import Failpoint
from tests.integration.jobs import START_SECONDS, STATE_PARTITIONS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.pairs import Pairs
from tests.processes import signal_all
from tests.sql_worker import SQL


@pytest.fixture
def pairs(kafka: EmbeddedKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Pairs:
    """Each test has its own topics."""
    name = f"once{crc32(request.node.name.encode())}"
    pairs = Pairs(kafka, name, tmp_path, delivery="exactly_once")
    pairs.create_topics()
    return pairs


def read_all(job: Job, count: int) -> JobStatus:
    return job.wait_for_offsets(left=count, right=count)


def test_results_are_emitted_once_and_counted(pairs: Pairs, tmp_path: Path, jvm: SharedJvm) -> None:
    with Job(pairs.spec(), tmp_path, jvm) as job:
        for start in range(0, 9, 3):
            pairs.produce(range(start, start + 3))
            status = read_all(job, start + 3)
        assert 9 == status.totals.output_records
        transactions = status.totals.transactions
        assert 2 * status.totals.batches == transactions.pop("committed")
        assert {0} == set(transactions.values())
        assert 0 == job.terminate()
    assert list(range(9)) == pairs.numbers()


def test_unexpected_error_has_a_place_and_its_batch_runs_again(
    pairs: Pairs, failpoint: Failpoint, tmp_path: Path, jvm: SharedJvm
) -> None:
    with Job(pairs.spec(), tmp_path, jvm) as job:
        pairs.produce(range(3))
        read_all(job, 3)
        failpoint.arm("raise", "after_offset_log")
        pairs.produce(range(3, 6))
        failure = read_all(job, 6).last_failure
        assert 0 == job.terminate()

    assert failure is not None
    assert ("unexpected", True) == (failure.code, failure.retryable)
    assert re.match(
        r"unexpected error ZeroDivisionError: planted \(at job/delivery/sink\.py:\d+ in "
        r"_deliver\)\. The job runs batch [1-9]\d* again, and nothing is lost",
        failure.message,
    )
    assert list(range(6)) == pairs.numbers()


def wake(job: Job) -> None:
    signal_all(reversed(job.tree), signal.SIGCONT)


def has_given_up(job: Job) -> bool:
    if job.process.poll() is not None:
        return True
    status = job.status()
    return status is not None and status.state == "FAILED"


def test_checkpoint_that_differs_from_the_markers_is_refused_with_the_remedy(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm
) -> None:
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"
    with Job(pairs.spec(), tmp_path, jvm) as job:
        pairs.produce(range(3))
        read_all(job, 3)
        assert 0 == job.terminate()
        shutil.copytree(checkpoint, copy)

        job.start()
        pairs.produce(range(3, 6))
        read_all(job, 6)
        assert 0 == job.terminate()
        newest = checkpoint.rename(tmp_path / "newest")
        copy.rename(checkpoint)

        job.start()
        # The first sentence depends on whether the newest batch has the number of this one.
        assert "is an older copy" in refusal(job)
        assert 1 == job.terminate()
        shutil.rmtree(checkpoint)
        newest.rename(checkpoint)
        delete_topic(pairs, f"{pairs.name}.commits")

        job.start()
        pairs.produce(range(6, 9))
        assert f"output.commit_topic {pairs.name}.commits was deleted" in refusal(job)
        assert 1 == job.terminate()

        for number, delivery in ((9, "at_least_once"), (12, "exactly_once")):
            pairs.delivery = delivery
            job.spec_file.write_text(pairs.spec())
            job.start()
            pairs.produce(range(number, number + 3))
            read_all(job, number + 3)
            assert 0 == job.terminate()
    assert list(range(15)) == pairs.numbers()


def refusal(job: Job) -> str:
    failure = job.wait_for_state("FAILED").last_failure
    assert failure is not None
    assert "checkpoint" == failure.code
    assert "Traceback" not in failure.message
    return failure.message


@pytest.mark.parametrize(
    ("partitions", "config", "command"),
    [
        (1, {"cleanup.policy": "compact"}, "--alter --topic {} --partitions 2"),
        (2, {"cleanup.policy": "delete"}, "--topic {} --add-config cleanup.policy=compact"),
    ],
    ids=["too few partitions", "not compacted"],
)
def test_unsuitable_commit_topic_is_refused_with_the_command_that_corrects_it(
    pairs: Pairs, partitions: int, config: dict[str, str], command: str
) -> None:
    """At a start, which creates the topic if it is missing."""
    topic = f"{pairs.name}.commits"
    pairs.kafka.create_topics([topic], partitions=partitions, config=config)
    plan = join_plan(spec_from_yaml(pairs.spec(), {}), SQL, state_partitions=STATE_PARTITIONS)

    with pytest.raises(TopicError) as refused:
        create_commit_topic_if_used(plan, KafkaAdmin(kafka_access(plan.bootstrap_servers, None)))
    assert command.format(topic) in str(refused.value)


def delete_topic(pairs: Pairs, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": pairs.kafka.bootstrap_servers, "log_level": 0})
    client.delete_topics([topic])[topic].result(START_SECONDS)
