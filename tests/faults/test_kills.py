"""Each process of the job is killed, stopped, frozen or limited at critical points.

In a transaction, the proxy catches a request. What was caught reaches the broker late, when another
run has taken over.
"""

import re
import time
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from job.spec.join_conditions import JoinOperator
from tests.faults.harness import Harness
from tests.faults.proxy import Api, Point, Proxy
from tests.faults.slots import HELD_SECONDS, Slots
from tests.integration.jobs import START_SECONDS, STATE_PARTITIONS
from tests.integration.test_lifecycle import desired_state
from tests.polling import wait_until

ROWS = 300
TRANSACTION_SECONDS = 5
# The other slot is committed by then: tasks begin in the order of their slots.
SLOT = STATE_PARTITIONS - 1


# Whether the broker has answered the commit of the slot, how many of the slots the next start finds
# committed, and a command that arrives in the batch. The soak and test_real_time.py also hold other
# requests of a transaction: the writer is the same.
COMMITS = ((False, SLOT, "pause", "PAUSED"), (True, SLOT + 1, "stop", "STOPPED"))


@pytest.mark.timeout(900)  # several starts of a JVM
@pytest.mark.parametrize("operator", list(JoinOperator))
def test_job_killed_or_stopped_in_a_batch_neither_loses_nor_repeats_a_result(
    operator: JoinOperator, kafka: EmbeddedKafka, proxy: Proxy, tmp_path: Path
) -> None:
    """The desired state survives a kill. SIGTERM during a batch: the job completes the batch.

    tests/semantics/test_transaction_writer.py interrupts the writer alone, at each of its requests;
    the soak kills jobs at random.
    """
    limits = {"STREAMJOIN_TEST_COMMIT_SECONDS": str(HELD_SECONDS)}
    name = f"points_{operator}"
    harness = Harness(kafka, name, tmp_path, operator=operator, proxy=proxy, environment=limits)
    slots = Slots(harness)
    with harness.job as job:
        harness.feed(ROWS)
        harness.recovered(time.monotonic())
        # All slots are committed, and Spark's batch is not.
        job.arm("kill", "after_all_commits")
        harness.feed(ROWS)
        job.wait_for_failpoint()
        job.process.wait()
        assert last_of(harness, "offsets") == last_of(harness, "commits") + 1
        job.start()
        harness.recovered(time.monotonic())
        assert STATE_PARTITIONS == skipped_transactions(harness)

        for is_answered, skipped, verb, state in COMMITS:
            point = commit_of(slots, is_answered=is_answered)
            break_at(point, harness, proxy, slots)
            job.ask(verb)
            wait_until(
                lambda state=state: desired_state(tmp_path) == state,
                START_SECONDS,
                "the desired state is stored",
            )
            now = job.status()
            assert now is not None
            assert "RUNNING" == now.state
            job.kill_tree()
            offsets, commits = (last_of(harness, log) for log in ("offsets", "commits"))
            assert offsets == commits + 1, point
            # Spark commits the state of a partition before it has handed over its last row.
            assert offsets + 1 == newest_state(harness, SLOT)

            job.start()
            job.wait_for_state(state)
            job.ask("resume")
            harness.recovered(time.monotonic())
            assert skipped == skipped_transactions(harness), point
            proxy.release()
            if not is_answered:
                proxy.wait_until_over(point)
        harness.check(harness.settle())

        break_at(commit_of(slots), harness, proxy, slots)
        running = last_of(harness, "offsets")
        assert last_of(harness, "commits") < running
        job.freeze()
        job.process.terminate()  # arrives after the thaw
        proxy.release()
        job.thaw()
        assert 0 == job.process.wait(START_SECONDS)
        # One more may have been planned by then; it has no task.
        assert running <= last_of(harness, "commits")

        job.start()
        status = harness.settle()
        assert 0 == status.totals.transactions["skipped"]
        harness.check(status)


def break_at(point: Point, harness: Harness, proxy: Proxy, slots: Slots) -> None:
    """Return when a request of a batch is caught, and all slots before it have committed."""
    proxy.catch(point)
    harness.feed(ROWS)
    proxy.wait_until_caught(point)
    slots.wait_for_marker(*range(SLOT))


def commit_of(slots: Slots, *, is_answered: bool = False) -> Point:
    return Point(Api.END_TXN, slots.ids[SLOT], is_answered=is_answered, topic=slots.output)


def skipped_transactions(harness: Harness) -> int:
    status = harness.job.status()
    assert status is not None
    return status.totals.transactions["skipped"]


def test_job_that_is_stopped_in_a_transaction_harms_neither_its_successor_nor_itself(
    kafka: EmbeddedKafka, proxy: Proxy, tmp_path: Path
) -> None:
    """Its commit arrives when the successor has taken over, and the job continues afterwards. Then
    the successor is stopped for longer than its transaction may last."""
    limits = {"STREAMJOIN_TEST_COMMIT_SECONDS": str(HELD_SECONDS)}
    short = {**limits, "STREAMJOIN_TEST_TRANSACTION_SECONDS": str(TRANSACTION_SECONDS)}
    harness = Harness(kafka, "zombie", tmp_path, proxy=proxy, environment=limits)
    slots = Slots(harness)
    with harness.job as job:
        harness.feed(ROWS)
        harness.recovered(time.monotonic())
        point = commit_of(slots)
        break_at(point, harness, proxy, slots)
        job.freeze()
        with harness.new_job(tmp_path / "successor", short) as successor:
            harness.job = successor
            harness.recovered(time.monotonic())
            assert SLOT == skipped_transactions(harness)
            proxy.release()
            proxy.wait_until_over(point)
            job.thaw()
            assert 1 == job.process.wait(START_SECONDS)
            harness.feed(ROWS)
            harness.recovered(time.monotonic())

            break_at(commit_of(slots), harness, proxy, slots)
            successor.freeze()
            assert harness.hides_records()
            wait_until(
                lambda: not harness.hides_records(), START_SECONDS, "the broker has aborted it"
            )
            proxy.release()
            successor.thaw()
            harness.recovered(time.monotonic())
            status = successor.status()
            assert status is not None
            assert 1 <= status.totals.transactions["aborted"]
            harness.check(harness.settle())


def last_of(harness: Harness, log: str) -> int:
    folder = harness.checkpoint / "query" / log
    return max(int(path.name) for path in folder.iterdir() if path.name.isdecimal())


def newest_state(harness: Harness, partition: int) -> int:
    """Batch n writes version n + 1."""
    state = harness.checkpoint / "query" / "state" / "0" / str(partition)
    return max(int(re.split("[_.]", path.name)[0]) for path in state.rglob("*.changelog"))
