"""A name belongs to one query: a second one is refused, or replaces the first with consent."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.kafka import EmbeddedKafka
from job.delivery.ownership import ensure_ownership
from job.delivery.slots import Slot, Target
from job.errors import CheckpointError, DeliveryError
from job.kafka.clients import admin
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.pairs import Pairs
from tests.integration.test_exactly_once import read_all, refusal
from tests.integration.test_topic_identity import reset
from tests.polling import wait_until
from tests.unit.delivery.test_ownership import Checkpoint


def create_pairs(kafka: EmbeddedKafka, name: str, folder: Path) -> Pairs:
    pairs = Pairs(kafka, name, folder, delivery="exactly_once")
    pairs.create_topics()
    return pairs


@pytest.fixture(scope="module")
def second_jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedJvm]:
    """For a job that runs at the same time as the one on `jvm`."""
    with SharedJvm(tmp_path_factory.mktemp("second-jvm")) as jvm:
        yield jvm


@pytest.mark.timeout(900)  # seven starts
def test_new_checkpoint_under_an_old_name_is_refused_without_consent(
    kafka: EmbeddedKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jvm: SharedJvm,
    second_jvm: SharedJvm,
) -> None:
    pairs = create_pairs(kafka, "onename", tmp_path)
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    other_spec = Pairs(kafka, "onename", other_folder, delivery="exactly_once").spec()
    checkpoint, kept = tmp_path / "checkpoint", tmp_path / "kept"
    with Job(pairs.spec(), tmp_path, jvm) as job:
        pairs.produce(range(3))
        read_all(job, 3)
        assert 0 == job.terminate()
        checkpoint.rename(kept)

        job.start()
        assert f"`streamjoin run {job.spec_file} --new-query`" in refusal(job)
        assert 1 == job.terminate()
        shutil.rmtree(checkpoint)
        kept.rename(checkpoint)

        job.start()
        job.wait_for_state("RUNNING")
        with Job(other_spec, other_folder, second_jvm) as other:
            assert "results of another query were delivered under the name onename" in refusal(
                other
            )
            pairs.produce(range(3, 6))
            read_all(job, 6)
            assert list(range(6)) == pairs.numbers()
            other.terminate()

            monkeypatch.setenv("STREAMJOIN_NEW_QUERY", "true")
            other.start()
            read_all(other, 6)
            assert sorted([*range(6)] * 2) == pairs.numbers()
            pairs.produce(range(6, 9))
            read_all(other, 9)
            failure = job.wait_for_state("FAILED").last_failure
            assert failure is not None
            assert "fenced" == failure.code
            # Its producers are fenced before it reads a marker of the other query.
            assert "another job has taken over this query" in failure.message
            assert sorted([*[*range(6)] * 2, 6, 7, 8]) == pairs.numbers()
            monkeypatch.delenv("STREAMJOIN_NEW_QUERY")
            # Later starts of the new query need no consent.
            assert 0 == other.terminate()
            other.start()
            pairs.produce([9])
            read_all(other, 10)
            assert 0 == other.terminate()

        # A reset implies consent.
        reset(job, "--start", "earliest")
        job.ask("resume")
        read_all(job, 10)
        assert 0 == job.terminate()
    assert sorted([*[*range(6)] * 3, *[6, 7, 8, 9] * 2]) == pairs.numbers()


def test_dead_letters_of_a_replaced_query_with_more_state_partitions_need_no_consent(
    kafka: EmbeddedKafka,
) -> None:
    topic = "partitions.commits"
    kafka.create_topics([topic], partitions=5, config={"cleanup.policy": "compact"})

    def take(query_id: str, state_partitions: int, *replaced: str, new_query: bool = False) -> None:
        client = {"bootstrap.servers": kafka.bootstrap_servers}
        target = Target(admin(client), tuple(client.items()), "partitions", query_id, topic, 300)
        letters = Slot("dead-letters", state_partitions)
        checkpoint: Any = Checkpoint(replaced_queries=frozenset(replaced))

        def is_taken() -> bool:
            try:
                ensure_ownership(target, checkpoint, letters, since=0, new_query=new_query)
            except DeliveryError as error:  # the broker does not lead a new partition at once
                if not error.retryable:
                    raise
                return False
            return True

        wait_until(is_taken, START_SECONDS, "Kafka has answered")

    take("first", 4)
    take("second", 2, new_query=True)
    take("third", 4, "second")  # as a change of state partitions does
    with pytest.raises(CheckpointError, match="markers of query third"):
        take("fourth", 4, "first", "second")
