"""The real-time engine with exactly-once delivery, broken at each point of its protocol.

The proxy catches requests of the transactions, so the job contains no failpoints. What was caught
reaches the broker late, when another run has taken over.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from deploy.local.kafka import EmbeddedKafka
from job.join_spec.engine import Engine
from job.protocol.status import Phase
from job.protocol.totals import Totals
from tests.faults.commit_topic import SlotRecords, slot_records
from tests.faults.faulty_job import FaultyJob
from tests.faults.harness import Harness
from tests.faults.proxy import Api, Point, Proxy
from tests.integration.jobs import START_SECONDS, STATE_PARTITIONS
from tests.polling import wait_until
from tests.processes import has_ended

ROWS = 100
# Longer than a micro-batch takes, and shorter than the wait for the answer to a commit.
TRANSACTION_SECONDS = 5
COMMIT_SECONDS = 9
# Requests that are caught are not sent again, however busy the machine is.
HELD_SECONDS = 50
PAUSE_SECONDS = 4.0
# Less than Kafka's default for the wait for an answer, 30 s.
LOST_ANSWER_SECONDS = 20.0


class Slots:
    """The transaction slots of a harness: their producers and their records in the commit topic."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.ids = [f"streamjoin-{harness.name}-{n}" for n in range(STATE_PARTITIONS)]
        self.output = harness.topic("out")

    @property
    def records(self) -> list[SlotRecords]:
        slots = slot_records(self._harness.records(self._harness.topic("commits")))
        [query_id] = {query_id for query_id, _ in slots}
        return [slots[query_id, str(n)] for n in range(STATE_PARTITIONS)]

    @property
    def running_batch(self) -> int:
        """The batch that Spark has not committed yet, while a caught request prevents its end."""
        commits = self._harness.checkpoint / "query" / "commits"
        names = (path.name for path in commits.glob("*"))
        return max((int(name) for name in names if name.isdecimal()), default=-1) + 1

    def wait_for_marker(self, *slots: int) -> list[SlotRecords]:
        """Wait until these slots have the marker of the running batch."""
        batch = self.running_batch

        def has_all() -> list[SlotRecords] | None:
            records = self.records
            return records if all(batch in records[n].batches for n in slots) else None

        return wait_until(has_all, START_SECONDS, f"slots {slots} have the marker of {batch}")

    @contextmanager
    def hide_records(self, slot: int) -> Iterator[None]:
        """Hide the next records of the slot from consumers, by an open transaction of another
        producer."""
        harness = self._harness
        settings: dict[str, Any] = {
            "bootstrap.servers": harness.kafka.bootstrap_servers,
            "transactional.id": f"hides-{harness.name}",
        }
        producer = Producer(settings)
        producer.init_transactions(START_SECONDS)
        producer.begin_transaction()
        producer.produce(harness.topic("commits"), b"{}", b"other", slot)
        assert 0 == producer.flush(START_SECONDS)
        try:
            yield
        finally:
            producer.abort_transaction(START_SECONDS)


def kill_jvm(job: FaultyJob) -> None:
    jvm = job.jvm
    jvm.kill()
    wait_until(lambda: has_ended(jvm), START_SECONDS, "the JVM has ended")


def totals(harness: Harness) -> Totals:
    status = harness.job.status()
    assert status is not None
    return status.totals


def wait_for_interval(job: FaultyJob) -> None:
    job.wait_for(lambda status: status.phase is Phase.REAL_TIME, "the query runs in real time")


def wait_for_failure(job: FaultyJob, reason: str) -> None:
    """The run has failed for the reason, which is the last failure."""
    job.wait_for(
        lambda status: status.last_failure and reason in status.last_failure.message,
        f"a run has failed: {reason}",
    )


@pytest.fixture
def proxy(faulty: tuple[EmbeddedKafka, Proxy]) -> Iterator[Proxy]:
    yield faulty[1]
    faulty[1].heal()


@pytest.mark.timeout(900)  # five starts of a JVM
def test_killed_at_each_point_of_its_protocol_it_neither_loses_nor_repeats_a_result(
    kafka: EmbeddedKafka, proxy: Proxy, tmp_path: Path
) -> None:
    limits = {"STREAMJOIN_TEST_COMMIT_SECONDS": str(HELD_SECONDS)}
    harness = Harness(
        kafka, "rtkilled", tmp_path, engine=Engine.REAL_TIME, proxy=proxy, environment=limits
    )
    slots = Slots(harness)
    harness.feed(ROWS)
    # The claim of the name is the first transaction of a slot.
    between_tasks = Point(Api.END_TXN, slots.ids[1], passing=1)
    proxy.catch(between_tasks)
    with harness.job as job:
        # A micro-batch: slot 0 is committed, slot 1 is not.
        proxy.wait_until_caught(between_tasks)
        assert 0 not in slots.wait_for_marker(0)[1].batches
        kill_jvm(job)
        harness.recovered(time.monotonic())
        assert 1 == totals(harness).transactions["skipped"]

        for kill in (
            kill_before_and_after_a_commit,
            kill_before_all_slots_have_ended_an_interval,
            kill_after_all_slots_have_ended_an_interval,
        ):
            wait_for_interval(job)
            kill(harness, proxy, slots)
            harness.recovered(time.monotonic())
        proxy.release()
        harness.feed(ROWS)
        result = harness.check(harness.settle())
        assert result.matched > ROWS
        assert result.unmatched > 0


def kill_before_and_after_a_commit(harness: Harness, proxy: Proxy, slots: Slots) -> None:
    """Slot 0 has written rows and not committed them, slot 1 has committed them.

    The repetition reads all of a slot's records, also if the transaction of another producer hides
    them for some time.
    """
    before = Point(Api.END_TXN, slots.ids[0], topic=slots.output)
    after = Point(Api.END_TXN, slots.ids[1], is_answered=True, topic=slots.output)
    ids = len(slots.records[1].ids)
    harness.feed(ROWS)
    wait_until(lambda: len(slots.records[1].ids) > ids, START_SECONDS, "slot 1 is open")
    with slots.hide_records(1):
        ids = len(slots.records[1].ids)
        proxy.catch(before, after)
        harness.feed(ROWS)
        proxy.wait_until_caught(before, after)
        harness.job.kill()
        harness.job.start()
        slots.wait_for_marker(0)
    wait_until(lambda: len(slots.records[1].ids) > ids, START_SECONDS, "slot 1 was committed")


def kill_before_all_slots_have_ended_an_interval(
    harness: Harness, proxy: Proxy, slots: Slots
) -> None:
    before_end = Point(Api.END_TXN, slots.ids[1])
    proxy.catch(before_end)
    proxy.wait_until_caught(before_end)
    ended, unfinished = slots.wait_for_marker(0)
    assert ended.ends_with_interval
    assert len(ended.batches) > len(unfinished.batches)
    kill_jvm(harness.job)


def kill_after_all_slots_have_ended_an_interval(
    harness: Harness, proxy: Proxy, slots: Slots
) -> None:
    """Spark has not committed the interval."""
    after_end = Point(Api.END_TXN, slots.ids[1], is_answered=True)
    proxy.catch(after_end)
    proxy.wait_until_caught(after_end)
    slots.wait_for_marker(0, 1)
    harness.job.kill_tree()
    harness.job.start()


@pytest.mark.timeout(900)
def test_each_result_is_emitted_once_through_all_faults_of_broker_network_and_other_jobs(
    kafka: EmbeddedKafka, proxy: Proxy, tmp_path: Path
) -> None:
    limits = {
        "STREAMJOIN_TEST_TRANSACTION_SECONDS": str(TRANSACTION_SECONDS),
        "STREAMJOIN_TEST_COMMIT_SECONDS": str(COMMIT_SECONDS),
    }
    harness = Harness(
        kafka, "rtbroken", tmp_path, engine=Engine.REAL_TIME, proxy=proxy, environment=limits
    )
    slots = Slots(harness)
    zero, _ = slots.ids

    def break_at(api: Api, *, is_answered: bool = False) -> None:
        """Return when a request of a transaction with results is caught. It is passed by
        `proxy.heal`."""
        wait_for_interval(harness.job)
        point = Point(api, zero, is_answered=is_answered, topic=slots.output)
        proxy.catch(point)
        harness.feed(ROWS)
        proxy.wait_until_caught(point)

    with harness.job as first:
        harness.feed(ROWS)
        harness.recovered(time.monotonic())

        # The broker has committed, its answer is lost, and so are all connections.
        break_at(Api.END_TXN, is_answered=True)
        proxy.cut()
        wait_until(lambda: proxy.counts.refused > 0, START_SECONDS, "a client is refused")
        proxy.heal()
        harness.recovered(time.monotonic())

        # Commits are lost until the broker has aborted the transaction.
        wait_for_interval(first)
        proxy.swallow_all_commits()
        harness.feed(ROWS)
        wait_until(harness.hides_records, START_SECONDS, "a transaction is open")
        wait_until(lambda: not harness.hides_records(), START_SECONDS, "the broker has aborted it")
        proxy.heal()
        wait_for_failure(first, "the transaction was open for longer than its timeout")
        harness.recovered(time.monotonic())

        break_at(Api.PRODUCE)
        pid = kafka.pid
        kafka.kill()
        proxy.heal()
        kafka.start()
        assert pid != kafka.pid
        harness.recovered(time.monotonic())

        break_at(Api.END_TXN)
        broker = harness.broker_process()
        broker.send_signal(signal.SIGSTOP)
        try:
            proxy.heal()
            until = time.monotonic() + PAUSE_SECONDS
            wait_until(lambda: time.monotonic() > until, START_SECONDS, "the pause is over")
        finally:
            broker.send_signal(signal.SIGCONT)
        harness.recovered(time.monotonic())

        # Stopped in a transaction. A second job on the checkpoint takes over. Its limits are those
        # of production.
        break_at(Api.END_TXN)
        first.freeze()
        proxy.heal()
        with harness.new_job(tmp_path / "second", environment={}) as second:
            harness.job = second
            harness.recovered(time.monotonic())
            first.thaw()
            assert 1 == first.process.wait(START_SECONDS)

            # The answer is lost, and the connection stays open. The producer sends the request
            # again, and the run ends.
            break_at(Api.END_TXN, is_answered=True)
            again = Point(Api.END_TXN, zero)
            proxy.catch(again)
            wait_until(lambda: again.is_caught, LOST_ANSWER_SECONDS, "the commit is sent again")
            proxy.heal()
            harness.recovered(time.monotonic())
            harness.feed(ROWS)
            harness.check(harness.settle())
