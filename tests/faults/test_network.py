"""The network and the broker under a running job: cut, slow, silent, paused, killed."""

import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions

from deploy.local.kafka import EmbeddedKafka
from tests.faults.proxy import Proxy
from tests.faults.rig import POISON, Rig
from tests.integration.jobs import START_SECONDS
from tests.polling import wait_until

ROWS = 200
COMMIT_SECONDS = 4


@pytest.fixture
def rig(faulty: tuple[EmbeddedKafka, Proxy], tmp_path: Path) -> Rig:
    kafka, proxy = faulty
    waits = {"STREAMJOIN_TEST_COMMIT_SECONDS": str(COMMIT_SECONDS)}
    return Rig(kafka, "network", tmp_path, proxy=proxy, environment=waits)


def transactions(rig: Rig) -> dict[str, int]:
    status = rig.job.status()
    assert status is not None
    return status.totals.transactions


def test_whatever_the_network_and_the_broker_do_each_result_comes_once(
    rig: Rig, faulty: tuple[EmbeddedKafka, Proxy]
) -> None:
    proxy = faulty[1]
    counts = proxy.counts
    with rig.job:
        rig.feed(ROWS)
        rig.recovered(time.monotonic())

        # The commit has happened, its answer is lost: the marker tells.
        proxy.swallow_reply_of_commit(close=False)
        rig.feed(ROWS)
        rig.recovered(time.monotonic())
        assert (1, 1) == (counts.replies_swallowed, transactions(rig)["unknown"])
        assert {} == failures(rig)

        # As before, but the connection ends too: Kafka's client asks again and is told.
        proxy.swallow_reply_of_commit(close=True)
        rig.feed(ROWS)
        rig.recovered(time.monotonic())
        assert (2, 1) == (counts.replies_swallowed, transactions(rig)["unknown"])

        # The commit has not happened; from outside it looks the same.
        proxy.swallow_commit()
        rig.feed(ROWS)
        rig.recovered(time.monotonic())
        assert (1, 2) == (counts.commits_swallowed, transactions(rig)["unknown"])
        assert {"delivery": 1} == failures(rig)

        proxy.slow(0.05)
        rig.feed(ROWS)
        rig.recovered(time.monotonic())
        assert counts.delayed > 0
        proxy.heal()

        proxy.cut()
        rig.feed(ROWS)
        wait_until(lambda: counts.refused > 0, START_SECONDS, "a client is refused")
        proxy.heal()
        rig.recovered(time.monotonic())
        assert counts.cut > 0

        proxy.hold_replies()
        rig.feed(ROWS)
        wait_until(lambda: counts.held > 0, START_SECONDS, "an answer is held")
        proxy.heal()
        rig.recovered(time.monotonic())

        status = rig.settle()
        verdict = rig.verdict(status)
        assert verdict.matched > ROWS
        assert verdict.unmatched > 0


def test_broker_killed_paused_and_bounced_and_topics_that_grow(
    faulty: tuple[EmbeddedKafka, Proxy], tmp_path: Path
) -> None:
    kafka, _ = faulty
    rig = Rig(kafka, "broker", tmp_path)
    with rig.job:
        rig.feed(ROWS)
        rig.recovered(time.monotonic())

        pid = kafka.pid
        for _ in range(3):
            kafka.kill()
            kafka.start()
            rig.feed(ROWS)
        assert pid != kafka.pid
        rig.recovered(time.monotonic())

        kafka_process = rig.broker_process()
        kafka_process.send_signal(signal.SIGSTOP)
        try:
            failure = rig.job.wait_for_state("RESTARTING").last_failure
        finally:
            kafka_process.send_signal(signal.SIGCONT)
        assert failure is not None
        assert failure.retryable
        rig.recovered(time.monotonic())

        # What comes to the new partitions before Spark knows of them is read from the beginning.
        for side in ("left", "right"):
            new = NewPartitions(rig.topic(side), 4)
            rig.admin.create_partitions([new])[rig.topic(side)].result(START_SECONDS)
        rig.feed(ROWS)
        rig.feed(ROWS, abort=True)
        committed = len(rig.records(rig.topic("left")))
        assert sum(rig.ends(rig.topic("left")).values()) > committed + ROWS // 2
        rig.feed_poison()
        status = rig.settle()
        assert 4 == len(status.last_batch.left.end_offsets)
        before = rig.verdict(status)
        assert Counter(POISON.keys()) == +Counter(status.totals.left.bad_records)
        assert 2 * len(POISON) == before.unreadable

        late = status.totals.late_rows
        rig.feed_late(5)
        status = rig.settle()
        assert 10 == status.totals.late_rows - late
        assert 10 == rig.verdict(status).late_rows


def failures(rig: Rig) -> dict[str, int]:
    status = rig.job.status()
    assert status is not None
    return status.totals.failures
