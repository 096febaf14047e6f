"""Idle sides: an idle topic does not delay the other topic's rows indefinitely."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from deploy.local.kafka import EmbeddedKafka
from job.event_time.empty_tails import EmptyTails
from job.kafka.broker_watch import BrokerWatch
from job.plan.planner import join_plan
from job.protocol.status import JobStatus
from job.spec.spec import spec_from_yaml
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.topics import consume_all, produce
from tests.polling import wait_until
from tests.sql_worker import SQL

_SPEC = """
name: {name}
kafka: {{bootstrap_servers: "{servers}"}}
left:
  topic: {name}.left
  schema: k BIGINT, t TIMESTAMP
  key: [k]
  event_time: t
  watermark_delay: 1 second
  {left_more}
right:
  topic: {name}.right
  schema: k BIGINT, t TIMESTAMP
  key: [k]
  event_time: t
  watermark_delay: 1 second
  idle_after: 2 seconds
join: {{type: left_outer, match_window: {{before: 0 seconds, after: 2 seconds}}}}
output:
  topic: {name}.out
  columns: {{k: left.k, matched: right.k}}
  delivery: at_least_once
checkpoint: {checkpoint}
on_bad_record: drop
"""


class Topics:
    """Topics and spec of one test."""

    def __init__(self, kafka: EmbeddedKafka, name: str, folder: Path, left_more: str = "") -> None:
        self.servers = kafka.bootstrap_servers
        self.name = name
        kafka.create_topics([f"{name}.{part}" for part in ("left", "right", "out")], partitions=2)
        self.spec = _SPEC.format(
            name=name, servers=self.servers, checkpoint=folder / "checkpoint", left_more=left_more
        )

    def send(self, side: str, k: int, at_ms: int) -> None:
        produce(self.servers, f"{self.name}.{side}", [{"k": k, "t": at_ms}])

    def wait_for(self, *results: tuple[int, int | None]) -> None:
        """Wait until the results are exactly these pairs of left key and match."""

        def came() -> bool:
            received = consume_all(self.servers, f"{self.name}.out")
            return sorted(results, key=str) == sorted(
                ((record.value["k"], record.value["matched"]) for record in received), key=str
            )

        wait_until(came, START_SECONDS, f"{results} are emitted")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def wait_for_status(job: Job, condition: Callable[[JobStatus], Any], what: str) -> JobStatus:
    def reached() -> JobStatus | None:
        status = job.status()
        return status if status is not None and condition(status) else None

    return wait_until(reached, START_SECONDS, what)


def test_unmatched_rows_are_emitted_while_the_other_topic_is_idle_and_none_is_late(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    topics = Topics(kafka, "silent_right", tmp_path)
    with Job(topics.spec, tmp_path, jvm) as job:
        # The left side advances by itself; the right topic has never had a record.
        start = now_ms()
        topics.send("left", 1, start)
        topics.send("left", 2, start + 60_000)
        topics.wait_for((1, None))
        assert {"right": True} == job.wait_for_state("RUNNING").idle

        # A record arrives: a current row, behind which event time may be by idle_after and delay.
        topics.send("left", 3, start + 61_000)
        topics.send("right", 3, start + 61_500)
        topics.send("right", 99, now_ms())
        topics.wait_for((1, None), (3, 3))
        wait_for_status(job, lambda status: not status.idle["right"], "the right side is awake")
        status = wait_for_status(job, lambda status: status.idle["right"], "it is silent again")
        assert 0 == status.totals.late_rows

        job.ask("pause")
        assert {} == job.wait_for_state("PAUSED").idle
        job.ask("resume")
        again = now_ms()
        topics.send("left", 4, again + 61_000)  # Spark needs a record to run its first batch
        assert 0 == status.totals.late_rows
        job.wait_for_state("RUNNING")
        wait_for_status(job, lambda status: status.idle.get("right"), "idle after a resume")

        job.kill_tree()
        job.start()
        topics.send("left", 5, again + 62_000)
        status = wait_for_status(job, lambda status: status.idle.get("right"), "idle after a kill")
        topics.wait_for((1, None), (3, 3))
        assert 0 == status.totals.late_rows


def test_all_unmatched_rows_are_emitted_while_both_topics_are_idle(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    topics = Topics(kafka, "silent_both", tmp_path, left_more="idle_after: 2 seconds")
    start = now_ms()
    topics.send("left", 1, start)
    topics.send("left", 2, start)
    topics.send(
        "left", 3, start + 2 * 86_400_000
    )  # without `max_event_time_ahead`, this row would make all later rows late
    topics.send("right", 2, start + 1)
    with Job(topics.spec, tmp_path, jvm) as job:
        topics.wait_for((1, None), (2, 2))

        # After idleness, and after a restart while idle, rows in order are joined.
        now = now_ms()
        topics.send("left", 4, now)
        topics.send("right", 4, now + 1)
        topics.wait_for((1, None), (2, 2), (4, 4))
        assert 0 == job.terminate()
        job.start()
        now = now_ms()
        topics.send("left", 5, now)
        topics.send("right", 6, now)
        topics.wait_for((1, None), (2, 2), (4, 4), (5, None))
        status = job.wait_for_state("RUNNING")

    assert 0 == status.totals.late_rows
    assert {"left": True, "right": True} == status.idle


def test_broker_rejects_a_record_with_a_timestamp_more_than_an_hour_ahead(
    kafka: EmbeddedKafka,
) -> None:
    """The reason why the record timestamp is trusted."""
    kafka.create_topics(["ahead.of.the.broker"], partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    answers: list[int | None] = []
    for ahead_ms in (3_500_000, 3_700_000):
        producer.produce(
            "ahead.of.the.broker",
            b"{}",
            timestamp=now_ms() + ahead_ms,
            on_delivery=lambda error, _: answers.append(error.code() if error else None),
        )
        producer.flush(30)

    assert [None, KafkaError.INVALID_TIMESTAMP] == answers


@pytest.fixture
def transaction(kafka: EmbeddedKafka) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": "still-open",
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer


def test_topic_with_an_open_transaction_is_not_read_to_its_end(
    kafka: EmbeddedKafka, tmp_path: Path, transaction: Producer
) -> None:
    topics = Topics(kafka, "open_transaction", tmp_path)
    read = {"left": {0: 0, 1: 0}, "right": {0: 0, 1: 0}}
    plan = join_plan(spec_from_yaml(topics.spec, {}), SQL, state_partitions=1)
    watch = BrokerWatch(
        plan,
        settings=lambda: {"bootstrap.servers": kafka.bootstrap_servers},
        read=lambda: read,
        topics=lambda: plan.topics,
        compare_topics=lambda _: None,
        tails=EmptyTails(),
    )
    watch.start()
    try:
        wait_until(lambda: watch.all_read_before("right"), 60, "an empty topic is read to its end")

        transaction.produce("open_transaction.right", b"{}", partition=1)
        transaction.flush(30)
        # A record is in the topic, but no consumer can read it yet.
        wait_until(lambda: watch.all_read_before("right") is None, 60, "it is not any more")
        assert {0: 0, 1: 0} == watch.report().right.latest == watch.report().output.latest
        assert watch.all_read_before("left") is not None

        transaction.commit_transaction(30)
        read["right"][1] = 2  # the record, and the transaction's end
        wait_until(lambda: watch.all_read_before("right"), 60, "it is again")
    finally:
        watch.close()
