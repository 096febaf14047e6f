"""Faults of the network and the broker under a running job: cut, slow, silent, paused, killed."""

import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions

from deploy.local.kafka import EmbeddedKafka
from tests.faults.harness import POISON, Harness
from tests.faults.proxy import Api, Point, Proxy
from tests.faults.slots import Slots
from tests.integration.jobs import START_SECONDS
from tests.integration.jvms import SharedJvm
from tests.polling import wait_until

ROWS = 200
COMMIT_SECONDS = 4
GRACE_SECONDS = 2


@pytest.fixture
def harness(kafka: EmbeddedKafka, proxy: Proxy, tmp_path: Path) -> Harness:
    waits = {
        "STREAMJOIN_TEST_COMMIT_SECONDS": str(COMMIT_SECONDS),
        "STREAMJOIN_GRACE_SECONDS": str(GRACE_SECONDS),
    }
    return Harness(kafka, "network", tmp_path, proxy=proxy, environment=waits)


def test_each_result_is_emitted_once_through_all_network_faults(
    harness: Harness, proxy: Proxy
) -> None:
    counts = proxy.counts
    with harness.job:
        harness.feed(ROWS)
        harness.recovered(time.monotonic())

        # The broker has committed, and its answer is lost: Kafka's client sends the commit again.
        for lost, close in enumerate((False, True), start=1):
            repeated = counts.commits_repeated
            proxy.swallow_reply_of_commit(close=close)
            harness.feed(ROWS)
            harness.recovered(time.monotonic())
            assert lost == counts.replies_swallowed
            assert repeated < counts.commits_repeated

        # The broker has not committed, which looks the same to the client.
        proxy.swallow_commit()
        harness.feed(ROWS)
        harness.recovered(time.monotonic())
        assert 1 == counts.commits_swallowed

        delay_a_commit(harness, proxy)
        assert {} == failures(harness)

        proxy.slow(0.05)
        harness.feed(ROWS)
        harness.recovered(time.monotonic())
        assert counts.delayed > 0
        proxy.heal()

        proxy.cut()
        harness.feed(ROWS)
        wait_until(lambda: counts.refused > 0, START_SECONDS, "a client is refused")
        proxy.heal()
        harness.recovered(time.monotonic())
        assert counts.cut > 0

        # A pause interrupts the batch that waits for an answer.
        proxy.hold_replies()
        harness.feed(ROWS)
        wait_until(lambda: counts.held > 0, START_SECONDS, "an answer is held")
        harness.job.ask("pause")
        harness.job.wait_for_state("PAUSED")
        assert "batch_interrupted" in harness.job.log.read_text()
        proxy.heal()
        harness.job.ask("resume")
        harness.recovered(time.monotonic())

        status = harness.settle()
        result = harness.check(status)
        assert result.matched > ROWS
        assert result.unmatched > 0


def delay_a_commit(harness: Harness, proxy: Proxy) -> None:
    """The client sends a commit again. The broker receives the first one while the next transaction
    of the slot is open, and must not commit it."""
    slots = Slots(harness)
    late = Point(Api.END_TXN, slots.ids[1], topic=slots.output)
    proxy.catch(late)
    harness.feed(ROWS)
    proxy.wait_until_caught(late)
    harness.recovered(time.monotonic())

    # After COMMIT_SECONDS the client sends the records again, and after an answer it commits them.
    answers = [
        Point(Api.PRODUCE, slots.ids[1], is_answered=True, topic=slots.output) for _ in range(60)
    ]
    proxy.catch(*answers)
    harness.feed(ROWS)
    proxy.wait_until_caught(answers[0])
    slots.wait_for_marker(0)
    # The first answer may be that the transaction before is not over: nothing is written then.
    wait_until(lambda: harness.hides_records("out"), START_SECONDS, "records are hidden")
    harness.job.freeze()
    try:
        proxy.release()
        proxy.wait_until_over(late)
        assert harness.hides_records("out")
    finally:
        harness.job.thaw()
    harness.recovered(time.monotonic())


def test_broker_killed_paused_and_bounced_and_topics_that_grow(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    harness = Harness(kafka, "broker", tmp_path, jvm=jvm)
    with harness.job:
        harness.feed(ROWS)
        harness.recovered(time.monotonic())

        pid = kafka.pid
        for _ in range(3):
            kafka.kill()
            kafka.start()
            harness.feed(ROWS)
        assert pid != kafka.pid
        harness.recovered(time.monotonic())

        kafka_process = harness.broker_process()
        kafka_process.send_signal(signal.SIGSTOP)
        try:
            failure = harness.job.wait_for_state("RESTARTING").last_failure
        finally:
            kafka_process.send_signal(signal.SIGCONT)
        assert failure is not None
        assert failure.retryable
        harness.recovered(time.monotonic())

        # Spark reads the new partitions from the beginning, including records from before it knew
        # them.
        for side in ("left", "right"):
            new = NewPartitions(harness.topic(side), 4)
            harness.admin.create_partitions([new])[harness.topic(side)].result(START_SECONDS)
        harness.feed(ROWS)
        harness.feed(ROWS, abort=True)
        committed = len(harness.records(harness.topic("left")))
        assert sum(harness.ends(harness.topic("left")).values()) > committed + ROWS // 2
        harness.feed_poison()
        status = harness.settle()
        assert 4 == len(status.last_batch.left.end_offsets)
        before = harness.check(status)
        assert Counter(POISON.keys()) == +Counter(status.totals.left.bad_records)
        assert 2 * len(POISON) == before.unreadable

        late = status.totals.late_rows
        harness.feed_late(5)
        status = harness.settle()
        assert 10 == status.totals.late_rows - late
        assert 10 == harness.check(status).late_rows


def failures(harness: Harness) -> dict[str, int]:
    status = harness.job.status()
    assert status is not None
    return status.totals.failures
