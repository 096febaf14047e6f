"""A topic that was deleted, created again and refilled is detected at any time."""

import re
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from deploy.local.kafka import EmbeddedKafka
from job.protocol.status import Failure
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.pairs import Pairs
from tests.integration.test_exactly_once import delete_topic
from tests.polling import wait_until


@pytest.fixture
def pairs(kafka: EmbeddedKafka, tmp_path: Path) -> Pairs:
    pairs = Pairs(kafka, "identity", tmp_path, delivery="exactly_once")
    pairs.create_topics()
    return pairs


@pytest.mark.timeout(600)  # four starts
def test_recreated_input_is_refused_on_resume_while_running_and_at_a_start(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm
) -> None:
    with Job(pairs.spec(), tmp_path, jvm) as job:
        pairs.produce(range(10))
        job.wait_for_offsets(left=10, right=10)
        job.ask("pause")
        job.wait_for_state("PAUSED")
        recreate(pairs, "left")
        pairs.produce(range(10, 60))  # beyond the offsets that were read
        job.ask("resume")
        assert_refused(pairs, job.wait_for_failure(1), "left")
        assert list(range(10)) == pairs.numbers()

        reset(job, "--left", "0=0,1=0")
        job.ask("resume")
        job.wait_for_offsets(left=50, right=60)
        assert list(range(60)) == pairs.numbers()

        recreate(pairs, "right")
        pairs.produce(range(60, 200))
        assert_refused(pairs, job.wait_for_state("FAILED").last_failure, "right")
        assert 1 == job.terminate()

        job.start()
        assert_refused(pairs, job.wait_for_failure(1), "right")
        reset(job, "--start", "earliest")
        job.ask("resume")
        job.wait_for_offsets(left=190, right=140)
        assert 0 == job.terminate()
    assert set(range(200)) == set(pairs.numbers())


def recreate(pairs: Pairs, side: str) -> None:
    topic = f"{pairs.name}.{side}"
    client = AdminClient({"bootstrap.servers": pairs.kafka.bootstrap_servers, "log_level": 0})
    delete_topic(pairs, topic)
    wait_until(lambda: topic not in client.list_topics().topics, START_SECONDS, "it is deleted")
    pairs.kafka.create_topics([topic], partitions=2)


def assert_refused(pairs: Pairs, failure: Failure | None, side: str) -> None:
    assert failure is not None
    assert "retention" == failure.code
    assert f"{side}.topic {pairs.name}.{side} (topic id " in failure.message
    assert re.search(rf"`streamjoin reset \S+/join.yaml --{side} 0=0,1=0`", failure.message)


def reset(job: Job, *start: str) -> None:
    """With the commands that the message names."""
    spec = str(job.spec_file)
    for command in (("stop", spec), ("reset", spec, *start, "--yes")):
        done = job.command(*command)
        assert 0 == done.returncode, done.stderr
