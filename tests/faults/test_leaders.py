"""Transactions that end while a partition has no leader: docs/delivery.md, "Exactly once"."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from job.errors import BrokerError
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.preflight import check_topics
from job.kafka.security import KafkaAccess
from tests.faults.cluster import Cluster, two_brokers
from tests.integration.jobs import START_SECONDS
from tests.integration.topics import consume_all
from tests.polling import wait_until
from tests.unit.specs import plan

OUT = "attributed"
NO_LEADER = -1


def test_start_waits_for_leaders_because_kafka_would_leave_an_aborted_transaction_open(
    tmp_path: Path,
) -> None:
    with two_brokers(tmp_path) as cluster:
        cluster.kafka.create_topics(["impressions", "clicks", OUT])
        cluster.place_on_other(OUT)
        joined = plan(output__delivery="exactly_once")
        # A new client each time, as at a start: another one may still ask the killed broker.
        access = KafkaAccess(cluster.kafka.bootstrap_servers)
        assert 1 == check_topics(joined, KafkaAdmin(access)).partitions[OUT]

        write(cluster, b"aborted")
        cluster.other.kill()
        cluster.wait_for_leader(OUT, NO_LEADER)
        with pytest.raises(BrokerError, match=r"have no leader, .*: attributed/0\. Start"):
            check_topics(joined, KafkaAdmin(access))

        # What a start would do. Once Kafka is corrected, only the second record is committed: then
        # delete the check, and the paragraph in the page.
        new_producer(cluster)
        cluster.other.start()
        write(cluster, b"committed").commit_transaction(START_SECONDS)
        wait_until(
            lambda: values(cluster) == ["aborted", "committed"],
            START_SECONDS,
            "both records are committed: a commit returns before the broker has written it",
        )


def values(cluster: Cluster) -> list[str]:
    committed = consume_all(cluster.kafka.bootstrap_servers, OUT, bytes.decode)
    return [record.value for record in committed]


def new_producer(cluster: Cluster) -> Producer:
    """It aborts the transaction of the producer before."""
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.kafka.bootstrap_servers,
        "transactional.id": "writer",
        "log_level": 0,
    }
    producer = Producer(settings)
    producer.init_transactions(START_SECONDS)
    return producer


def write(cluster: Cluster, value: bytes) -> Producer:
    producer = new_producer(cluster)
    producer.begin_transaction()
    producer.produce(OUT, value)
    assert 0 == producer.flush(START_SECONDS)
    return producer
