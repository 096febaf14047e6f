"""A name belongs to one query: a second one is refused, or replaces the first with consent."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from deploy.local.kafka import EmbeddedKafka
from job.delivery.commit_protocol import Marker
from job.delivery.markers import MarkerReader, OldKey, marker_key
from job.delivery.ownership import ensure_ownership
from job.delivery.transactions import Target, TransactionSlot
from job.errors import CheckpointError, DeliveryError
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.pairs import Pairs
from tests.integration.test_exactly_once import read_all, refusal
from tests.integration.test_topic_identity import reset
from tests.polling import wait_until
from tests.unit.delivery.test_ownership import Checkpoint
from tests.unit.specs import changed


def create_pairs(kafka: EmbeddedKafka, name: str, folder: Path) -> Pairs:
    pairs = Pairs(kafka, name, folder, delivery="exactly_once")
    pairs.create_topics()
    return pairs


@pytest.fixture
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
        assert "`streamjoin run SPEC --new-query`" in refusal(job)
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
            assert "another query has taken over the name onename" in failure.message
            assert sorted([*[*range(6)] * 2, 6, 7, 8]) == pairs.numbers()
            monkeypatch.delenv("STREAMJOIN_NEW_QUERY")
            # Later starts of the new query need no consent.
            assert 0 == other.terminate()
            other.start()
            pairs.produce([9])
            read_all(other, 10)
            assert 0 == other.terminate()

        # A reset implies consent.
        reset(job, {"left": "earliest", "right": "earliest"})
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
        client = (("bootstrap.servers", kafka.bootstrap_servers),)
        target = Target(
            client, "partitions", query_id, "partitions.out", "id", topic, 300, 1_000_000
        )
        letters = TransactionSlot("dead-letters", state_partitions)
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


def test_query_of_an_older_version_continues_and_its_old_job_cannot_write(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    pairs = create_pairs(kafka, "oldname", tmp_path)
    topic = "oldname.markers"
    kafka.create_topics([topic], partitions=3, config={"cleanup.policy": "compact"})
    with Job(pairs.spec(), tmp_path, jvm) as job:
        pairs.produce(range(3))
        read_all(job, 3)
        assert 0 == job.terminate()

        # The markers of an older version, which had a key and a transactional id for each query.
        query_id = json.loads((tmp_path / "checkpoint/query/metadata").read_text())["id"]
        newest = newest_markers(pairs)
        old = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for partition, marker in enumerate(newest):
            written = {"batch_id": marker.batch_id, "fingerprint": marker.fingerprint}
            key = OldKey(query_id, str(partition)).encoded
            old.produce(topic, json.dumps(written).encode(), key, partition)
        assert 0 == old.flush(START_SECONDS)
        zombie = transaction_of_the_old_job(pairs, query_id)

        job.spec_file.write_text(changed(pairs.spec(), output__commit_topic=topic))
        job.start()
        pairs.produce(range(3, 6))
        read_all(job, 6)
        with pytest.raises(KafkaException, match=r"fenced|epoch|FENCED"):
            zombie.commit_transaction(START_SECONDS)
        assert 0 == job.terminate()
    assert list(range(6)) == pairs.numbers()
    for partition in range(2):
        key = OldKey(query_id, str(partition)).encoded
        marker = reader(pairs, topic).newest(partition, key, to_the_end=True)
        assert marker is not None
        assert marker.is_retired


def reader(pairs: Pairs, topic: str) -> MarkerReader:
    client = {"bootstrap.servers": pairs.kafka.bootstrap_servers}
    return MarkerReader(client, topic, "reads-markers")


def newest_markers(pairs: Pairs) -> list[Marker]:
    markers = []
    for partition in range(2):
        key = marker_key(pairs.name, str(partition))
        marker = reader(pairs, f"{pairs.name}.commits").newest(partition, key, to_the_end=True)
        assert marker is not None
        markers.append(marker)
    return markers


def transaction_of_the_old_job(pairs: Pairs, query_id: str) -> Producer:
    """An open transaction that contains a result."""
    settings: dict[str, Any] = {
        "bootstrap.servers": pairs.kafka.bootstrap_servers,
        "transactional.id": f"streamjoin-{pairs.name}-{query_id}-0",
        "log_level": 0,
    }
    producer = Producer(settings)
    producer.init_transactions(START_SECONDS)
    producer.begin_transaction()
    producer.produce(f"{pairs.name}.out", b'{"n": 99}', headers={"streamjoin-id": b"old"})
    producer.flush(START_SECONDS)
    return producer
