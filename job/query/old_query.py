"""The old query of a change: its frozen settings, and the interrupted interval that it repeats.

The results of an interval are visible before Spark commits its offsets. If the interval was
interrupted, results of records after the last batch can be in the output, until all records of the
interval are read again. The new query of a change would deliver these results again. So the change
waits until the old query has repeated the interval.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from job.checkpoint.checkpoint import Checkpoint
from job.delivery.exactly_once import delivery_target
from job.delivery.ownership import newest_delivered
from job.errors import CheckpointError, ConflictError, JobUnavailableError
from job.event_time.interval import Interval
from job.join_spec.output import Delivery
from job.kafka.security import kafka_access
from job.plan.fingerprint import incompatible_changes
from job.plan.plan import JoinPlan
from job.protocol.caller import running_job
from job.protocol.status import JobStatus, Phase, QueryState
from job.settings import JobSettings

POLL_SECONDS = 0.5
RUNNING = {QueryState.STARTING, QueryState.RUNNING, QueryState.RESTARTING}
# Beyond the grace period: after a crash the job starts again in this time, or stops a query.
SECONDS_MORE = 60.0


def frozen(old: JoinPlan, checkpoint: Checkpoint) -> JoinPlan:
    """The old plan with the number of state partitions of its checkpoint.

    Raises CheckpointError if the old spec is not the one of the checkpoint.
    """
    settings = checkpoint.fingerprint
    if settings is None:
        raise CheckpointError(f"{checkpoint.folder.root} contains no checkpoint: check OLD_SPEC")
    differing = incompatible_changes(old, settings)
    if differing:
        fields = "; ".join(f"{c.field} {c.frozen}, not {c.wanted}" for c in differing)
        raise CheckpointError(
            f"OLD_SPEC is not the spec of the checkpoint {checkpoint.folder.root}, which has "
            f"{fields}: pass the spec that the old job runs with"
        )
    return replace(old, state_partitions=int(settings["state_partitions"]))


def repetition(old: JoinPlan, checkpoint: Checkpoint) -> Iterator[Interval]:
    """Yields the interrupted interval with its current state until the query has repeated it. The
    caller ensures that no interval is running.

    Only an interval of which results are delivered. With at-least-once delivery this is not known,
    and a change does not wait: the new query may deliver results again, as each start may.
    """
    first = interval = checkpoint.interrupted_interval
    if first is None or not _has_delivered(old, checkpoint, first):
        return
    while interval is not None and interval.batch_id == first.batch_id:
        yield interval
        interval = checkpoint.interrupted_interval


def _has_delivered(old: JoinPlan, checkpoint: Checkpoint, interval: Interval) -> bool:
    if old.output.delivery is Delivery.AT_LEAST_ONCE:
        return False
    access = kafka_access(old.bootstrap_servers, old.security, old.schema_registry)
    target = delivery_target(old, access, checkpoint, record_bytes_max=0)
    # A running query may have open transactions. Its start has fenced those of the interval.
    delivered = newest_delivered(frozen(old, checkpoint), target, to_the_end=False)
    return delivered.has_part_of(interval.batch_id)


def interval_to_repeat(
    old: JoinPlan, checkpoint: Checkpoint, job: JobStatus | None
) -> Interval | None:
    """The interval for which a change waits. `job`: status of the old job. None: no job answers."""
    if job is not None and job.phase is Phase.REAL_TIME:
        return None  # A stop lets the present interval end.
    return next(repetition(old, checkpoint), None)


def await_repetition(
    old: JoinPlan, checkpoint: Checkpoint, settings: JobSettings, progress: Callable[[str], None]
) -> bool:
    """Wait until the old job has repeated the interrupted interval. Returns whether there was one.

    `progress`: called with lines for the user. Raises ConflictError if the query does not run, and
    JobUnavailableError if it makes no progress.
    """
    if interval_to_repeat(old, checkpoint, job_of(old, settings)) is None:
        return False
    seconds = settings.grace_seconds + SECONDS_MORE
    deadline, before = time.monotonic() + seconds, None
    for interval in repetition(old, checkpoint):
        job = job_of(old, settings)
        if job is None or job.state not in RUNNING:
            raise refusal(interval.batch_id, None if job is None else job.state)
        if job.phase is Phase.REAL_TIME:
            break
        left = interval.records_left(checkpoint.offsets)
        if left != before:
            deadline, before = time.monotonic() + seconds, left
            records = "" if left is None else f": {left:,} records are left"
            progress(
                f"the old query repeats interval {interval.batch_id}, which was interrupted, "
                f"before the query can stop{records}"
            )
        if time.monotonic() > deadline:
            raise JobUnavailableError(
                f"the old query has not repeated more of interval {interval.batch_id} within "
                f"{seconds:.0f} s: check the log of its job, then repeat the change"
            )
        time.sleep(POLL_SECONDS)
    return True


def job_of(plan: JoinPlan, settings: JobSettings) -> JobStatus | None:
    """Status of the job on the control socket. None: no job answers there, or one of another
    name."""
    job = running_job(settings.socket)
    return job if job is not None and job.name == plan.name else None


def refusal(batch_id: int, state: QueryState | None = None) -> ConflictError:
    """`batch_id`: the batch or interval that was interrupted. `state`: of the old query. None: not
    known."""
    does_not_run = "" if state is None else f" The query is {state}."
    return ConflictError(
        f"the old query was interrupted in batch {batch_id} after it had delivered some results, "
        f"and has not repeated all of them: the new query would deliver them again.{does_not_run} "
        "Let the old query run, and repeat the change while it runs: the change waits until the "
        "batch is repeated",
        allowed=[],
    )
