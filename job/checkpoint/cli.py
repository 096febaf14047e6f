"""`streamjoin checkpoint …` and `streamjoin state`: on a checkpoint that no job is using."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.folder import Folder
from job.checkpoint.lease import Lease
from job.checkpoint.maintenance import backed_up, log_findings, repaired, restored
from job.checkpoint.state_reader import StateReader
from job.errors import CheckpointError, StreamjoinError
from job.join_spec.expressions import SIDES, Side
from job.plan.fingerprint import refused
from job.plan.plan import JoinPlan
from job.protocol.results import StateRow
from job.redaction import Redaction
from job.settings import JobSettings
from job.spark.failures import failure_of
from job.spark.session import Jvm

_KEEP_STATE_PARTITIONS = (
    "the number of state partitions cannot be changed: Spark 4.3.0 offers to rewrite a checkpoint, "
    "and spoils it with the join's state format 4 (the rewritten state cannot be read any more). "
    "To have another number, set STREAMJOIN_STATE_PARTITIONS, name another folder in `checkpoint` "
    "and begin anew; rows now waiting in state are then not joined"
)


@dataclass(frozen=True)
class Opened:
    spark: SparkSession
    checkpoint: Checkpoint

    @property
    def folder(self) -> Folder:
        return self.checkpoint.folder


@contextmanager
def opened(plan: JoinPlan, settings: JobSettings) -> Iterator[Opened]:
    """With the lease: CheckpointInUseError while a job runs."""
    jvm = Jvm(settings, plan.spark_conf, Redaction())
    try:
        spark = jvm.session(settings, plan.spark_conf)
        checkpoint = Checkpoint(spark, plan.checkpoint)
        lease = Lease(checkpoint.folder, lost=lambda: None)
        lease.take()
        try:
            yield Opened(spark, checkpoint)
        finally:
            lease.release()
    except Py4JJavaError as error:
        raise failure_of(error, plan.bootstrap_servers) from error
    finally:
        jvm.close()


def verify(plan: JoinPlan, settings: JobSettings) -> tuple[list[str], bool]:
    """What was looked at and found, one line each; whether all is well."""
    with opened(plan, settings) as found:
        checks = [_fingerprint(plan, found), _logs(found), _state(plan, found)]
    return [f"{'ok   ' if ok else 'WRONG'}  {line}" for line, ok in checks], all(
        ok for _, ok in checks
    )


def backup(plan: JoinPlan, settings: JobSettings, target: str) -> list[str]:
    with opened(plan, settings) as found:
        made = backed_up(
            found.folder, Folder(found.spark, target), found.checkpoint, datetime.now(UTC)
        )
    told = f"{made.files} files, {made.bytes:,} bytes, copied to {made.location} and read back; "
    return [f"{told}the last batch in it is {_batch(made.batch_id)}"]


def restore(
    plan: JoinPlan, settings: JobSettings, source: str, *, results_again: bool
) -> list[str]:
    with opened(plan, settings) as found:
        put_back = restored(
            Folder(found.spark, source),
            found.folder,
            found.checkpoint,
            datetime.now(UTC),
            results_again=results_again,
        )
    told = [
        f"{put_back.files} files restored from {put_back.location}",
        f"the query goes on after batch {_batch(put_back.batch_id)}",
        f"what was there before is kept aside in {plan.checkpoint}",
    ]
    if results_again:
        told.append("results of later batches that are out already will come again")
    else:
        told.append(
            "if later batches were delivered exactly once, the query will refuse to go on: restore "
            "with --results-again then"
        )
    return told


def repair(plan: JoinPlan, settings: JobSettings) -> list[str]:
    with opened(plan, settings) as found:
        names = repaired(found.folder, datetime.now(UTC))
    return [f"{name} was empty and is put aside" for name in names] or [
        "there is nothing to repair"
    ]


def repartition() -> None:
    raise StreamjoinError(_KEEP_STATE_PARTITIONS)


def state(plan: JoinPlan, settings: JobSettings, side: Side, key: list[str]) -> list[str]:
    """The rows held for a key; without a key how many rows there are."""
    with opened(plan, settings) as found:
        batch_id = found.checkpoint.last_batch_id
        if batch_id is None:
            raise CheckpointError(f"{found.folder.root} holds no state: no batch has ended")
        reader = StateReader(found.spark, plan, found.checkpoint.query_location)
        never = threading.Event()
        if key:
            answer = reader.rows(side, key, batch_id, limit=1_000, cancel=never)
            lines = [_row(row) for row in answer.rows]
            return [f"{len(lines)} {side} rows held for {key} after batch {batch_id}", *lines]
        state_count = reader.count_rows(batch_id, cancel=never)
    return [
        f"{name} partition {part.partition}: {part.rows:,} rows"
        + (
            ""
            if part.unmatched_rows is None
            else f", {part.unmatched_rows:,} without a match so far"
        )
        for name in SIDES
        for part in state_count.side(name).partitions
    ]


def _fingerprint(plan: JoinPlan, found: Opened) -> tuple[str, bool]:
    frozen = found.checkpoint.fingerprint
    if frozen is None:
        return f"{found.folder.root} holds no checkpoint", False
    differing = refused(plan, frozen)
    if differing:
        told = "; ".join(f"{c.field} {c.frozen}, not {c.wanted}" for c in differing)
        return f"it was begun with other settings: {told}", False
    return "it was begun with the spec's settings", True


def _logs(found: Opened) -> tuple[str, bool]:
    told = log_findings(found.folder)
    if told.damage:
        return f"logs: {'; '.join(told.damage)}", False
    if told.repairable:
        return f"logs: {', '.join(told.repairable)} is empty; the next start repairs it", False
    return f"logs: whole, last batch {_batch(found.checkpoint.last_batch_id)}", True


def _state(plan: JoinPlan, found: Opened) -> tuple[str, bool]:
    """Every row is read, and its checksum with it."""
    batch_id = found.checkpoint.last_batch_id
    if batch_id is None:
        return "state: none yet", True
    reader = StateReader(found.spark, plan, found.checkpoint.query_location)
    try:
        state_count = reader.count_rows(batch_id, cancel=threading.Event())
    except Exception as error:
        return f"state: cannot be read: {str(error).splitlines()[0]}", False
    return f"state: {state_count.rows:,} rows read after batch {batch_id}", True


def _row(row: StateRow) -> str:
    return row.model_dump_json()


def _batch(batch_id: int | None) -> str:
    return "none" if batch_id is None else str(batch_id)
