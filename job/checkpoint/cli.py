"""`streamjoin checkpoint …` and `streamjoin state`, for a checkpoint that no job uses."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from job.checkpoint.checkpoint import ASIDE, Checkpoint
from job.checkpoint.folder import Folder
from job.checkpoint.frozen import frozen_settings
from job.checkpoint.lease import TWO_JOBS, Lease
from job.checkpoint.maintenance import (
    Backup,
    check_logs,
    create_backup,
    remove_temporary_files,
    repair_logs,
    restore_backup,
)
from job.checkpoint.reset import check_no_reset_is_pending, complete_reset, is_reset_pending
from job.checkpoint.state_reader import StateReader
from job.errors import CheckpointError
from job.plan.fingerprint import incompatible_changes, recorded_plan, recorded_topics
from job.plan.plan import JoinPlan
from job.protocol.reports import StateCount
from job.protocol.results import KeyRows
from job.redaction import Redaction
from job.settings import JobSettings
from job.spark.failures import failure_of
from job.spark.session import Jvm
from job.spec.sides import Side

STOP_THE_QUERY = (
    "the command needs a checkpoint that does not change. Stop the query with "
    "`streamjoin stop`, and repeat the command"
)
CALL_THE_JOB = (
    "a running job returns the rows itself: set STREAMJOIN_SOCKET to its socket, or call "
    "its service with --url. If its query is FAILED, stop it first with `streamjoin stop`"
)


@dataclass(frozen=True)
class OpenCheckpoint:
    spark: SparkSession
    checkpoint: Checkpoint

    @property
    def folder(self) -> Folder:
        return self.checkpoint.folder


@contextmanager
def view_checkpoint(plan: JoinPlan, settings: JobSettings) -> Iterator[OpenCheckpoint]:
    """Opens the checkpoint for reading: a job may run on it."""
    jvm = Jvm(settings, plan.driver_options, Redaction())
    try:
        spark = jvm.session(settings, plan.spark_conf)
        yield OpenCheckpoint(spark, Checkpoint(spark, plan.checkpoint))
    except Py4JJavaError as error:
        raise failure_of(error, plan.bootstrap_servers) from error
    except OSError as error:
        raise CheckpointError(f"a checkpoint cannot be read or written: {error}") from error
    finally:
        jvm.close()


@contextmanager
def open_checkpoint(
    plan: JoinPlan, settings: JobSettings, remedy: str = STOP_THE_QUERY
) -> Iterator[OpenCheckpoint]:
    """Takes the lease: raises CheckpointInUseError while a job runs, CheckpointError if a reset is
    not complete."""
    with view_checkpoint(plan, settings) as opened:
        check_no_reset_is_pending(opened.checkpoint)
        with leased(opened.checkpoint, remedy):
            yield opened


@contextmanager
def leased(checkpoint: Checkpoint, remedy: str = TWO_JOBS) -> Iterator[None]:
    """Completes a pending reset. Raises CheckpointInUseError while a job runs on the
    checkpoint."""
    lease = Lease(checkpoint.folder, lost=lambda: None, remedy=remedy)
    lease.take()
    try:
        complete_reset(checkpoint)
        yield
    finally:
        lease.release()


@dataclass(frozen=True)
class Check:
    text: str
    passed: bool

    def __str__(self) -> str:
        return f"{'ok    ' if self.passed else 'FAILED'}  {self.text}"


def verify(plan: JoinPlan, settings: JobSettings) -> list[Check]:
    with open_checkpoint(plan, settings) as opened:
        return [
            Check(*each)
            for each in (_fingerprint(plan, opened), _logs(opened), _state(plan, opened))
        ]


def backup(plan: JoinPlan, settings: JobSettings, target: str) -> Backup:
    with open_checkpoint(plan, settings) as opened:
        return create_backup(
            opened.folder, Folder(opened.spark, target), opened.checkpoint, datetime.now(UTC)
        )


def backup_lines(made: Backup) -> list[str]:
    return [
        f"{made.files} files ({made.bytes:,} bytes) copied to {made.location} and checked",
        f"the last batch in it is {_batch(made.batch_id)}",
    ]


def restore(plan: JoinPlan, settings: JobSettings, source: str, *, results_again: bool) -> Backup:
    with view_checkpoint(plan, settings) as opened, leased(opened.checkpoint, STOP_THE_QUERY):
        return restore_backup(
            Folder(opened.spark, source),
            opened.folder,
            opened.checkpoint,
            datetime.now(UTC),
            results_again=results_again,
        )


def restore_lines(plan: JoinPlan, backup: Backup, *, results_again: bool) -> list[str]:
    lines = [
        f"{backup.files} files restored from {backup.location}",
        f"the query continues after batch {_batch(backup.batch_id)}",
        f"the previous files are in {plan.checkpoint}, in a folder {ASIDE}<time>",
    ]
    if results_again:
        lines.append("results of later batches that were already delivered are delivered again")
    else:
        lines.append(
            "if later batches were delivered exactly once, the start is refused: then restore "
            "again with --results-again"
        )
    return lines


@dataclass(frozen=True)
class Repair:
    moved: list[str]
    """Log entries that a power failure left empty."""
    removed: list[str]
    """Temporary files of killed jobs."""
    reset_completed: bool
    """Whether a reset was interrupted before, and is complete."""

    @property
    def lines(self) -> list[str]:
        return [
            *["the reset that was interrupted is complete"] * self.reset_completed,
            *(f"{name} was empty and was moved aside" for name in self.moved),
            *(f"{name} was left by a killed job and was removed" for name in self.removed),
        ] or ["nothing to repair"]


def repair(plan: JoinPlan, settings: JobSettings) -> Repair:
    with view_checkpoint(plan, settings) as opened:
        was_pending = is_reset_pending(opened.checkpoint)
        with leased(opened.checkpoint, STOP_THE_QUERY):
            now = datetime.now(UTC)
            moved = repair_logs(opened.folder, now)
            return Repair(moved, remove_temporary_files(opened.folder, now), was_pending)


def state(
    plan: JoinPlan, settings: JobSettings, sides: Sequence[Side], key: list[str]
) -> list[KeyRows] | StateCount:
    """The rows of a key by side; without a key the number of rows."""
    with open_checkpoint(plan, settings, CALL_THE_JOB) as opened:
        batch_id = opened.checkpoint.last_batch_id
        if batch_id is None:
            raise CheckpointError(f"{opened.folder.root} contains no state: no batch has ended")
        reader = _reader(plan, opened)
        never = threading.Event()
        if key:
            return [reader.rows(s, key, batch_id, limit=1_000, cancel=never) for s in sides]
        return reader.count_rows(batch_id, cancel=never)


def _fingerprint(plan: JoinPlan, opened: OpenCheckpoint) -> tuple[str, bool]:
    frozen = frozen_settings(opened.checkpoint, plan)
    if frozen is None:
        return f"{opened.folder.root} contains no checkpoint", False
    differing = incompatible_changes(plan, frozen)
    if differing:
        fields = "; ".join(f"{c.field} {c.frozen}, not {c.wanted}" for c in differing)
        return f"settings: the checkpoint has {fields}", False
    return "settings: the same as in the spec", True


def _logs(opened: OpenCheckpoint) -> tuple[str, bool]:
    logs = check_logs(opened.folder)
    if logs.damage:
        return f"logs: {'; '.join(logs.damage)}", False
    if logs.repairable:
        return f"logs: {', '.join(logs.repairable)} is empty; the next start repairs it", False
    return f"logs: complete, last batch {_batch(opened.checkpoint.last_batch_id)}", True


def _state(plan: JoinPlan, opened: OpenCheckpoint) -> tuple[str, bool]:
    """Reads every row and checks its checksum."""
    batch_id = opened.checkpoint.last_batch_id
    if batch_id is None:
        return "state: empty, no batch has ended", True
    reader = _reader(plan, opened)
    try:
        counts = reader.count_rows(batch_id, cancel=threading.Event())
    except Exception as error:
        return f"state: cannot be read: {str(error).splitlines()[0]}", False
    return f"state: {counts.rows:,} rows read after batch {batch_id}", True


def _reader(plan: JoinPlan, opened: OpenCheckpoint) -> StateReader:
    checkpoint = opened.checkpoint
    frozen = checkpoint.fingerprint or {}
    plan = recorded_plan(plan, frozen).with_topics(recorded_topics(plan, frozen))
    return StateReader(opened.spark, plan, checkpoint.query_location)


def _batch(batch_id: int | None) -> str:
    return "none" if batch_id is None else str(batch_id)
