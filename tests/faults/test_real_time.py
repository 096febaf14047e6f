"""The real-time engine with exactly-once delivery, broken at each point of its protocol.

The proxy catches requests of the transactions, so the job contains no failpoints. What was caught
reaches the broker late, when another run has taken over.
"""

import signal
import time
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from job.protocol.status import JobStatus, Phase, QueryState
from job.protocol.totals import Totals
from job.spec.engine import Engine
from tests.faults.faulty_job import FaultyJob
from tests.faults.harness import Harness
from tests.faults.proxy import Api, Point, Proxy
from tests.faults.slots import HELD_SECONDS, Slots
from tests.integration.jobs import START_SECONDS
from tests.polling import wait_until
from tests.processes import has_ended

ROWS = 100
# Longer than a micro-batch takes, and shorter than the wait for the answer to a commit.
TRANSACTION_SECONDS = 5
COMMIT_SECONDS = 9
PAUSE_SECONDS = 4.0
# Less than Kafka's default for the wait for an answer, 30 s.
LOST_ANSWER_SECONDS = 20.0


def kill_jvm(job: FaultyJob) -> None:
    jvm = job.jvm
    jvm.kill()
    wait_until(lambda: has_ended(jvm), START_SECONDS, "the JVM has ended")


def totals(harness: Harness) -> Totals:
    status = harness.job.status()
    assert status is not None
    return status.totals


def wait_for_interval(job: FaultyJob) -> None:
    job.wait_for(
        lambda status: status.state is QueryState.RUNNING and status.phase is Phase.REAL_TIME,
        "the query runs in real time",
    )


def wait_for_failure(job: FaultyJob, reason: str) -> None:
    """A run has failed for the reason. If Spark has reported the task that sent the rows before the
    task that failed, the message names the log, which has the reason."""

    def has_failed(status: JobStatus) -> bool:
        message = status.last_failure.message if status.last_failure else ""
        is_in_the_log = f"DeliveryFailure: {reason}" in job.log.read_text(errors="replace")
        return reason in message or ("The log contains the cause" in message and is_in_the_log)

    job.wait_for(has_failed, f"a run has failed: {reason}")


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
        # The slot notices it with its next row. The next fault must not happen in the same run.
        harness.feed(ROWS)
        wait_for_failure(first, "a connection was closed during a commit")
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
