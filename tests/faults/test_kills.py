"""Killed, stopped, frozen, squeezed: each process of the job, at points where it matters."""

import re
import time
from pathlib import Path

import psutil

from deploy.local.kafka import EmbeddedKafka
from tests.faults.rig import Rig
from tests.integration.jobs import START_SECONDS
from tests.polling import wait_until
from tests.processes import has_ended

ROWS = 300
TRANSACTION_SECONDS = 5


# before_rows … after_all_commits: tests/integration/test_exactly_once.py
def test_killed_around_spark_s_own_logs_it_neither_loses_nor_repeats_a_result(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    rig = Rig(kafka, "points", tmp_path)
    with rig.job as job:
        rig.feed(ROWS)
        rig.recovered(time.monotonic())
        for point, skipped in (("after_offset_log", 0), ("after_commit_log", 0)):
            job.arm("kill", point)
            rig.feed(ROWS)
            job.wait_for_failpoint()
            job.process.wait()
            newest = [last_of(rig, log) for log in ("offsets", "commits")]
            assert (point == "after_offset_log") == (newest[0] > newest[1])

            job.start()
            rig.recovered(time.monotonic())
            status = job.status()
            assert status is not None
            assert skipped == status.totals.transactions["skipped"]
        # Spark commits the state of a partition before it has handed over its last row.
        job.arm("kill", "before_commit")
        rig.feed(ROWS)
        job.wait_for_failpoint()
        job.process.wait()
        assert last_of(rig, "offsets") == last_of(rig, "commits") + 1
        assert newest_state(rig) == last_of(rig, "offsets") + 1

        job.start()
        rig.verdict(rig.settle())


def test_a_transaction_that_the_broker_has_timed_out_is_written_again(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """The driver is stopped in mid-batch for longer than its transaction may last."""
    limit = {"STREAMJOIN_TEST_TRANSACTION_SECONDS": str(TRANSACTION_SECONDS)}
    rig = Rig(kafka, "timeout", tmp_path, environment=limit)
    with rig.job as job:
        rig.feed(ROWS)
        rig.recovered(time.monotonic())
        job.arm("stop", "before_commit")
        rig.feed(ROWS)
        job.wait_for_failpoint()
        assert rig.hides_records()
        wait_until(lambda: not rig.hides_records(), START_SECONDS, "the broker has aborted it")

        job.thaw()
        rig.recovered(time.monotonic())
        status = job.status()
        assert status is not None
        assert 1 <= status.totals.transactions["aborted"]
        rig.verdict(rig.settle())


def test_each_half_of_the_job_is_missed_by_the_other(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    rig = Rig(kafka, "halves", tmp_path)
    with rig.job as job:
        rig.feed(ROWS)
        rig.recovered(time.monotonic())

        workers = [each for each in job.tree if "pyspark.daemon" in each.cmdline()]
        assert workers
        for worker in workers:
            worker.kill()
        rig.feed(ROWS)
        rig.recovered(time.monotonic())

        # No room for one page more: the JVM ends itself, or the system ends it.
        jvm = job.jvm
        used = jvm.memory_info().vms
        jvm.rlimit(psutil.RLIMIT_AS, (used // 2, used // 2))
        rig.feed(3 * ROWS)
        wait_until(lambda: has_ended(jvm), START_SECONDS, "the JVM has ended for lack of memory")
        rig.recovered(time.monotonic())
        status = job.status()
        assert status is not None
        assert status.last_failure is not None
        assert "the JVM is gone" in status.last_failure.message
        rig.verdict(rig.settle())

        jvm = job.jvm
        job.kill()
        wait_until(lambda: has_ended(jvm), START_SECONDS, "the orphaned JVM has ended")


def test_stopped_in_mid_batch_it_ends_the_batch_and_then_itself(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    rig = Rig(kafka, "stopped", tmp_path)
    with rig.job as job:
        rig.feed(ROWS)
        rig.recovered(time.monotonic())
        job.arm("stop", "before_commit")
        rig.feed(ROWS)
        job.wait_for_failpoint()
        at_work = last_of(rig, "offsets")
        assert last_of(rig, "commits") < at_work
        job.process.terminate()  # arrives when it goes on
        job.thaw()
        assert 0 == job.process.wait(START_SECONDS)
        # One more may have been planned by then; it has got no task.
        assert at_work <= last_of(rig, "commits")

        job.start()
        status = rig.settle()
        assert 0 == status.totals.transactions["skipped"]
        rig.verdict(status)


def last_of(rig: Rig, log: str) -> int:
    folder = rig.checkpoint / "query" / log
    return max(int(path.name) for path in folder.iterdir() if path.name.isdecimal())


def newest_state(rig: Rig) -> int:
    """Version n + 1 is what batch n leaves; a partition gets there before the others do."""
    state = rig.checkpoint / "query" / "state" / "0"
    return max(int(re.split("[_.]", path.name)[0]) for path in state.rglob("*.changelog"))
