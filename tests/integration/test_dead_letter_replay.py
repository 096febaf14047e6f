"""Replay of dead letters into real topics, without a job."""

from typing import Any

import pytest
from confluent_kafka import Producer

from deploy.local.kafka import EmbeddedKafka
from job.dead_letters import headers as names
from job.dead_letters import replay
from job.dead_letters.cli import Selection, replay_letters
from job.errors import BrokerError
from job.kafka.security import kafka_access
from job.plan.plan import JoinPlan
from tests.integration.topics import count_all
from tests.unit.specs import plan

SECONDS = 30.0


class Replays:
    """Topics `<name>` and `<name>.dead` with one partition each, and the replay of letters."""

    def __init__(self, kafka: EmbeddedKafka, name: str, config: dict[str, str]) -> None:
        self.servers, self.name, self.dead = kafka.bootstrap_servers, name, f"{name}.dead"
        kafka.create_topics([name], partitions=1, config=config)
        kafka.create_topics([self.dead], partitions=1)

    @property
    def plan(self) -> JoinPlan:
        changes: dict[str, Any] = {
            "name": self.name,
            "kafka": {"bootstrap_servers": self.servers},
            "left__topic": self.name,
            "on_bad_record": None,
            "dead_letter": {"topic": self.dead},
        }
        return plan(**changes)

    def add_letter(self, value: bytes) -> None:
        headers = {
            names.TOPIC: self.name,
            names.PARTITION: "0",
            names.OFFSET: "0",
            names.SIDE: "left",
            names.REASON: "malformed_json",
            names.QUERY: self.name,
        }
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        producer.produce(self.dead, value, headers=dict(headers))
        assert 0 == producer.flush(SECONDS)

    def last_line(self) -> str:
        lines = replay_letters(self.plan, Selection(), lambda letters: [None] * len(letters))
        return list(lines)[-1]

    def open_transaction(self) -> Producer:
        """In the topic of the records."""
        settings = {"transactional.id": f"{self.name}-other", "log_level": 0}
        producer = Producer({"bootstrap.servers": self.servers, **settings})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        producer.produce(self.name, b"of another producer", partition=0)
        assert 0 == producer.flush(SECONDS)
        return producer


def test_record_that_its_topic_does_not_accept_is_an_error_and_no_letter_is_replayed(
    kafka: EmbeddedKafka,
) -> None:
    replays = Replays(kafka, "replays_refused", {"max.message.bytes": "20000"})
    for value in (b"bad", bytes(range(256)) * 100):
        replays.add_letter(value)

    with pytest.raises(BrokerError, match=r"too large.*Run the command again once"):
        replays.last_line()

    assert 2 == len(list(replay.letters(kafka_access(replays.servers, None), replays.dead)))


def test_replay_ends_when_readers_of_committed_records_can_read_its_records(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker answers a commit before it writes the ends of the transaction into the topics: a
    count of the records was 0 at first. Here the transaction of another producer hides them."""
    replays = Replays(kafka, "replays_readable", {})
    replays.add_letter(b"bad")
    other = replays.open_transaction()
    checks = []

    def check(*arguments: Any, **options: Any) -> Any:
        offsets = list_offsets(*arguments, **options)
        checks.append(offsets)
        if len(checks) == 1:
            other.abort_transaction(SECONDS)
        return offsets

    list_offsets = replay.list_offsets
    monkeypatch.setattr(replay, "list_offsets", check)

    assert replays.last_line() == (
        "1 replayed: readers of committed records can read them. The query reads them in its next "
        "batches. `late_rows` and `bad_records` of GET /v1/query count the records that are late "
        "or fail again"
    )
    assert len(checks) > 1
    # The record and the end of its transaction follow the two of the other producer.
    assert 4 == count_all(replays.servers, replays.name)


def test_replay_reports_that_the_transaction_of_another_producer_hides_its_records(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    replays = Replays(kafka, "replays_hidden", {})
    replays.add_letter(b"bad")
    other = replays.open_transaction()
    monkeypatch.setattr(replay, "_READABLE_SECONDS", 0.1)

    assert replays.last_line() == (
        "1 replayed: committed, but readers of committed records cannot read all of replays_hidden "
        "yet, for example because of an open transaction of another producer. The query reads the "
        "records afterwards"
    )
    other.abort_transaction(SECONDS)
    assert "0 replayed" == replays.last_line()
