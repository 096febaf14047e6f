"""Faults in a change of a join: kills at each of its points, and an old job that was frozen."""

import signal
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from job.spec.engine import Engine
from job.spec.join_conditions import JoinType
from tests import processes
from tests.integration.changed_joins import (
    T0,
    ChangedJob,
    Feeder,
    Row,
    Rows,
    Topics,
    check_results,
    created,
    killed_in_its_replay,
    succeeds,
)
from tests.integration.failpoint import Failpoint
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.test_change import AFTER, AFTERWARDS, BEFORE, CLOSING, LATE, LATE_AGAIN, PAST
from tests.integration.test_exactly_once import has_given_up, wake
from tests.polling import wait_until

BETWEEN: Rows = ([Row("between", 36)], [Row("between", 38)])

CHANGE_POINTS = (
    *("old_stopped", "replay_written", "new_prepared", "commit_topic_extended", "return_allowed"),
    *("slot_taken_over", "name_taken_over", "handed_over"),
)
"""Points of `streamjoin change`; see failpoints/sitecustomize.py."""
REPLAY_POINTS = ("after_offset_log", "after_all_commits")
"""Points of the batch that ends the replay. Before them the offsets of the batch are known, after
them its markers."""


def outer_join(
    kafka: EmbeddedKafka, name: str, parent: Path, *folders: str
) -> tuple[Topics, list[str], list[Path]]:
    """Topics, and a spec and a folder for each query."""
    topics = Topics(kafka, name, JoinType.LEFT_OUTER)
    made = created(parent, *folders)
    specs = [topics.spec(folder, topics.output, Engine.MICRO_BATCH) for folder in made]
    return topics, specs, made


def feed_before_the_cut(feeder: Feeder, old: Job) -> None:
    feeder.feed(old, PAST)
    feeder.feed(old, BEFORE)
    old.wait_for_watermark(T0 + 35_000)


@pytest.mark.timeout(900)  # seven starts
def test_change_survives_a_kill_at_every_point_and_an_undo(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm, failpoint: Failpoint
) -> None:
    """The first change is undone after its replay. The second one is killed at every point."""
    topics, specs, folders = outer_join(kafka, "changed_by_kills", tmp_path, "old", "undone", "new")
    feeder = Feeder(topics)
    with Job(specs[0], folders[0], jvm) as old:
        feed_before_the_cut(feeder, old)
        feeder.feed(old, LATE)
        assert 0 == old.terminate()

        undone = ChangedJob(specs[1], folders[1], jvm)
        files = (str(old.spec_file), str(undone.spec_file))
        succeeds(undone.change(old, "change", *files))
        with undone:
            undone.wait_for(lambda status: status.change and status.change.phase == "over", "over")
            assert 0 == undone.terminate()
        succeeds(undone.change(old, "change", *files, "--undo"))

        old.start()
        feeder.feed(old, AFTER)
        assert 0 == old.terminate()

        new = ChangedJob(specs[2], folders[2], jvm)
        files = (str(old.spec_file), str(new.spec_file))
        for point in CHANGE_POINTS:
            failpoint.arm("kill", point)
            assert -signal.SIGKILL == new.change(old, "change", *files).returncode
            failpoint.wait()
            if point == "slot_taken_over":  # The old query takes the slot back.
                old.start()
                feeder.feed(old, BETWEEN)
                assert 0 == old.terminate()
        repeated = new.change(old, "change", *files)
        succeeds(repeated)
        assert "the change is already complete" in repeated.stdout

    with killed_in_its_replay(new, failpoint, REPLAY_POINTS):
        feeder.feed(new, AFTERWARDS)
        feeder.feed(new, LATE_AGAIN)
        topics.feed(CLOSING)
        status = new.wait_for_watermark(T0 + 990_000)
        assert 0 == new.terminate()

    assert status.change is not None
    assert 0 == status.change.possibly_late_records
    check_results(topics, PAST, BEFORE, AFTER, BETWEEN, AFTERWARDS)


@pytest.mark.timeout(600)
def test_old_job_that_is_frozen_in_a_batch_cannot_write_after_the_hand_over(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm, failpoint: Failpoint
) -> None:
    """The old job continues before the new query has started. The command does not reach it, as on
    another machine."""
    topics, specs, folders = outer_join(kafka, "changed_while_frozen", tmp_path, "old", "new")
    feeder = Feeder(topics)
    with Job(specs[0], folders[0]) as old:
        feed_before_the_cut(feeder, old)
        failpoint.arm("stop", "after_offset_log")
        feeder.send(AFTER)
        failpoint.wait()

        new = ChangedJob(specs[1], folders[1], jvm)
        succeeds(new.command("change", str(old.spec_file), str(new.spec_file)))
        before = len(topics.received())
        wake(old)
        wait_until(lambda: has_given_up(old), START_SECONDS, "the old job has given up")
        assert before == len(topics.received())

        with new:
            feeder.feed(new, AFTERWARDS)
            topics.feed(CLOSING)
            new.wait_for_watermark(T0 + 990_000)
            assert 0 == new.terminate()
    check_results(topics, PAST, BEFORE, AFTER, AFTERWARDS)


@pytest.mark.timeout(600)
def test_change_that_was_frozen_while_the_old_query_delivered_is_refused_and_can_be_repeated(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm, failpoint: Failpoint
) -> None:
    """Another instance starts the old query once the lease of the frozen command has expired."""
    topics, specs, folders = outer_join(kafka, "frozen_change", tmp_path, "old", "refused", "new")
    feeder = Feeder(topics)
    old = Job(specs[0], folders[0], jvm)
    refused, new = ChangedJob(specs[1], folders[1]), ChangedJob(specs[2], folders[2], jvm)
    files = (str(old.spec_file), str(refused.spec_file))
    with old:
        feed_before_the_cut(feeder, old)
        assert 0 == old.terminate()

        failpoint.arm("stop", "name_taken_over")
        frozen = refused.command_in_background("change", *files)
        failpoint.wait()
        old.start()
        feeder.feed(old, AFTER)
        assert 0 == old.terminate()
        processes.signal_all(processes.tree(frozen.pid), signal.SIGCONT)
        assert 0 == frozen.wait(START_SECONDS)

    with refused:
        failure = refused.wait_for_state("FAILED").last_failure
        assert failure is not None
        assert "has delivered batch" in failure.message
    succeeds(new.command("change", *files, "--undo"))
    succeeds(new.command("change", files[0], str(new.spec_file)))
    with new:
        feeder.feed(new, AFTERWARDS)
        topics.feed(CLOSING)
        new.wait_for_watermark(T0 + 990_000)
        assert 0 == new.terminate()
    check_results(topics, PAST, BEFORE, AFTER, AFTERWARDS)
