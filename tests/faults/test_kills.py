"""Each process of the job is killed, stopped, frozen or limited at critical points."""

import re
import time
from pathlib import Path

import psutil
import pytest

from deploy.local.kafka import EmbeddedKafka
from tests.faults.harness import Harness
from tests.integration.jobs import START_SECONDS
from tests.polling import wait_until
from tests.processes import has_ended

ROWS = 300
TRANSACTION_SECONDS = 5


# How many of the two state partitions the next start finds committed.
POINTS = {
    "after_offset_log": {0},
    "before_rows": {0, 1},
    "between_rows": {0, 1},
    "before_commit": {0, 1},
    "after_commit": {1, 2},
    "after_all_commits": {2},
    "after_commit_log": {0},
}


@pytest.mark.timeout(900)  # a start for each point
def test_job_killed_at_any_point_or_stopped_in_a_batch_neither_loses_nor_repeats_a_result(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """SIGTERM during a batch: the job completes the batch."""
    harness = Harness(kafka, "points", tmp_path)
    with harness.job as job:
        harness.feed(ROWS)
        harness.recovered(time.monotonic())
        for point, skipped in POINTS.items():
            job.arm("kill", point)
            harness.feed(ROWS)
            job.wait_for_failpoint()
            job.process.wait()
            offsets, commits = (last_of(harness, log) for log in ("offsets", "commits"))
            if point == "after_commit_log":
                assert offsets in {commits, commits + 1}  # Spark may have planned the next batch
            else:
                assert offsets == commits + 1, point
            # Spark commits the state of a partition before it has handed over its last row.
            if point == "before_commit":
                assert offsets + 1 == newest_state(harness)

            job.start()
            harness.recovered(time.monotonic())
            status = job.status()
            assert status is not None
            assert status.totals.transactions["skipped"] in skipped, point
        harness.check(harness.settle())

        job.arm("stop", "before_commit")
        harness.feed(ROWS)
        job.wait_for_failpoint()
        running = last_of(harness, "offsets")
        assert last_of(harness, "commits") < running
        job.process.terminate()  # arrives after the thaw
        job.thaw()
        assert 0 == job.process.wait(START_SECONDS)
        # One more may have been planned by then; it has no task.
        assert running <= last_of(harness, "commits")

        job.start()
        status = harness.settle()
        assert 0 == status.totals.transactions["skipped"]
        harness.check(status)


def test_transaction_that_the_broker_has_timed_out_is_written_again(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """The driver is stopped during a batch for longer than its transaction may last."""
    limit = {"STREAMJOIN_TEST_TRANSACTION_SECONDS": str(TRANSACTION_SECONDS)}
    harness = Harness(kafka, "timeout", tmp_path, environment=limit)
    with harness.job as job:
        harness.feed(ROWS)
        harness.recovered(time.monotonic())
        job.arm("stop", "before_commit")
        harness.feed(ROWS)
        job.wait_for_failpoint()
        assert harness.hides_records()
        wait_until(lambda: not harness.hides_records(), START_SECONDS, "the broker has aborted it")

        job.thaw()
        harness.recovered(time.monotonic())
        status = job.status()
        assert status is not None
        assert 1 <= status.totals.transactions["aborted"]
        harness.check(harness.settle())


def test_job_recovers_from_lost_workers_and_a_lost_jvm_which_ends_with_its_driver(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    harness = Harness(kafka, "halves", tmp_path)
    with harness.job as job:
        harness.feed(ROWS)
        harness.recovered(time.monotonic())

        workers = [process for process in job.tree if "pyspark.daemon" in process.cmdline()]
        assert workers
        for worker in workers:
            worker.kill()
        harness.feed(ROWS)
        harness.recovered(time.monotonic())

        # No memory for one more page: the JVM ends itself, or the system kills it.
        jvm = job.jvm
        used = jvm.memory_info().vms
        jvm.rlimit(psutil.RLIMIT_AS, (used // 2, used // 2))
        harness.feed(3 * ROWS)
        wait_until(lambda: has_ended(jvm), START_SECONDS, "the JVM has ended for lack of memory")
        harness.recovered(time.monotonic())
        status = job.status()
        assert status is not None
        assert status.last_failure is not None
        assert "the JVM is gone" in status.last_failure.message
        harness.check(harness.settle())

        jvm = job.jvm
        job.kill()
        wait_until(lambda: has_ended(jvm), START_SECONDS, "the orphaned JVM has ended")


def last_of(harness: Harness, log: str) -> int:
    folder = harness.checkpoint / "query" / log
    return max(int(path.name) for path in folder.iterdir() if path.name.isdecimal())


def newest_state(harness: Harness) -> int:
    """Batch n writes version n + 1; one partition writes it before the others."""
    state = harness.checkpoint / "query" / "state" / "0"
    return max(int(re.split("[_.]", path.name)[0]) for path in state.rglob("*.changelog"))
