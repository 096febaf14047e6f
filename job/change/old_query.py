"""The old query of a change: its job, and the interval or batch that must end before it stops.

The results of an interval are visible before Spark commits its offsets. If the interval was
interrupted, results of records after the last batch can be in the output, until all records of the
interval are read again. The new query of a change would deliver these results again. So the change
waits until the old query has repeated the interval.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from job.change.query import Query
from job.checkpoint.checkpoint import Checkpoint
from job.delivery.commit_protocol import NO_BATCH
from job.delivery.delivered import Delivered
from job.delivery.exactly_once import delivery_target
from job.delivery.ownership import newest_delivered
from job.errors import ConflictError, JobUnavailableError
from job.event_time.interval import Interval
from job.kafka.kafka_admin import KafkaAdmin
from job.plan.plan import JoinPlan
from job.protocol.caller import running_job
from job.protocol.status import JobStatus, Phase, QueryState
from job.settings import JobSettings
from job.spec.output import Delivery
from job.waiting import wait_until

POLL_SECONDS = 0.5
RUNNING = {QueryState.STARTING, QueryState.RUNNING, QueryState.RESTARTING}
# Beyond the grace period: after a crash the job starts again in this time, or stops a query.
SECONDS_MORE = 60.0


@dataclass(frozen=True)
class Wait:
    """What a change waits for before the old query stops."""

    text: str
    """The reason and the progress, for the user."""
    stuck: str
    """The message if the progress ends."""
    interval: Interval | None = None
    """The interrupted interval that the old query repeats, or may repeat. None: it is another
    reason."""
    records_left: int | None = None
    """Records that the old query has not repeated yet. None: not known, or not begun."""


def waits(old: Query, phase: Phase | None) -> Iterator[Wait]:
    """Yields what a change waits for, with its progress, until the running query can stop.

    `phase`: of the query. With at-least-once delivery it is not known which results are delivered,
    and a change does not wait: the new query may deliver results again, as each start may.
    """
    if old.plan.output.delivery is Delivery.AT_LEAST_ONCE:
        return
    yield from _repetitions(old, phase)
    # An earlier run may have delivered a part of this batch, and this run may not have begun it.
    planned = old.checkpoint.last_planned_batch_id
    while planned is not None and planned > _last(old.checkpoint):
        stuck = f"batch {planned} of the old query has not ended"
        yield Wait(f"{stuck} yet", stuck)


def _last(checkpoint: Checkpoint) -> int:
    last = checkpoint.last_batch_id
    return NO_BATCH if last is None else last


def _repetitions(old: Query, phase: Phase | None) -> Iterator[Wait]:
    """Until Spark has committed all that repeats an interrupted interval of which results are
    delivered. A change does not wait for an interval that only runs: a stop lets it end."""
    checkpoint = old.checkpoint
    first = checkpoint.interrupted_interval
    if first is None or old.plan.output.delivery is Delivery.AT_LEAST_ONCE:
        return
    must_repeat: bool | None = None
    while (interval := checkpoint.interrupted_interval) is not None:
        if interval.batch_id != first.batch_id:
            return
        if must_repeat is None:
            must_repeat = _read_delivered(old).must_repeat(
                *(interval.batch_id, checkpoint.fence), in_intervals=phase is Phase.REAL_TIME
            )
        if must_repeat is False:
            return
        yield _repetition(interval, checkpoint) if must_repeat else _hidden(interval, old.plan)


def _read_delivered(old: Query) -> Delivered:
    """Without the records that open transactions hide: the running query has some, too."""
    target = delivery_target(old.plan, KafkaAdmin(old.read_access()), old.checkpoint)
    return newest_delivered(old.read_frozen_plan(), target, to_the_end=False)


def _repetition(interval: Interval, checkpoint: Checkpoint) -> Wait:
    left = interval.records_left(checkpoint.offsets)
    records = "" if left is None else f": {left:,} records are left"
    return Wait(
        f"the old query repeats interval {interval.batch_id}, which was interrupted, before the "
        f"query can stop{records}",
        f"the old query has not repeated more of interval {interval.batch_id}",
        interval,
        left,
    )


def _hidden(interval: Interval, old: JoinPlan) -> Wait:
    topic = old.output.commit_topic
    return Wait(
        f"an open transaction in the commit topic {topic} hides whether results of interval "
        f"{interval.batch_id}, which was interrupted, are delivered",
        f"a transaction that another producer has opened in the commit topic {topic} has not ended",
        interval,
    )


def with_deadline(waiting: Iterator[Wait], old: JoinPlan, settings: JobSettings) -> Iterator[Wait]:
    """Yields `waiting` with a pause after each. Raises JobUnavailableError if nothing changes in
    the time that a batch or an interval may take."""
    seconds = seconds_to_stop(old, settings)
    deadline, before = 0.0, None
    for wait in waiting:
        if wait != before:
            deadline, before = time.monotonic() + seconds, wait
        if time.monotonic() > deadline:
            raise JobUnavailableError(
                f"{wait.stuck} within {seconds:.0f} s, so the change was not made: check the log "
                "of the job, then repeat the change"
            )
        yield wait
        time.sleep(POLL_SECONDS)


def seconds_to_stop(old: JoinPlan, settings: JobSettings) -> float:
    """Time in which the old query ends its batch or interval, also if its job starts again."""
    seconds = settings.grace_seconds + SECONDS_MORE
    if old.real_time is not None:
        seconds += old.real_time.checkpoint_interval.total_seconds()
    return seconds


def interval_to_repeat(old: Query, job: JobStatus | None) -> Interval | None:
    """The interval for which a change waits. `job`: status of the old job. None: no job answers."""
    wait = next(_repetitions(old, None if job is None else job.phase), None)
    return None if wait is None else wait.interval


def await_repetition(old: Query, settings: JobSettings, progress: Callable[[str], None]) -> bool:
    """Wait until the old job has repeated the interrupted interval. Returns whether there was one.

    `progress`: called with lines for the user. Raises ConflictError if the query does not run or
    another one runs, and JobUnavailableError if it makes no progress.
    """
    job = _await_start(old.plan, settings)
    before = None
    if job is None or job.state not in RUNNING:
        if (interval := interval_to_repeat(old, job)) is not None:
            raise refusal(interval.batch_id, job)
        return False
    for wait in with_deadline(waits(old, job.phase), old.plan, settings):
        job = read_job(old.plan, settings)
        if job is None or job.state not in RUNNING:
            if wait.interval is None:
                break  # The change stops nothing, and checks what is delivered.
            raise refusal(wait.interval.batch_id, job)
        check_same_query(job, old.checkpoint)
        if wait != before:
            before = wait
            progress(wait.text)
    return before is not None


def _await_start(old: JoinPlan, settings: JobSettings) -> JobStatus | None:
    """Status of the old job, which does not start its query any more. A start fences the writers
    of an interrupted interval: before that the commit topic does not show what they deliver."""
    if old.real_time is None:
        return read_job(old, settings)

    def has_started() -> bool:
        job = read_job(old, settings)
        return job is None or job.state not in RUNNING or job.phase is not None

    wait_until(has_started, seconds_to_stop(old, settings), POLL_SECONDS)
    return read_job(old, settings)


def check_same_query(job: JobStatus, checkpoint: Checkpoint) -> None:
    """Raises ConflictError if the job runs another query than that of `checkpoint`, for example
    after the change of another client."""
    if job.query_id not in {None, checkpoint.query_id}:
        raise ConflictError(
            f"the job runs query {job.query_id}, and {checkpoint.folder.root} belongs to query "
            f"{checkpoint.query_id}: another client has changed the join. Pass the spec that the "
            "job runs with as OLD_SPEC",
            allowed=[],
        )


def read_job(plan: JoinPlan, settings: JobSettings) -> JobStatus | None:
    """Status of the job on the control socket. None: no job answers there, or one of another
    name."""
    job = running_job(settings.socket)
    return job if job is not None and job.name == plan.name else None


def refusal(batch_id: int, job: JobStatus | None = None) -> ConflictError:
    """`batch_id`: the batch or interval that was interrupted. `job`: its query does not run. None:
    not known."""
    does_not_run = "" if job is None else f" The query is {job.state}."
    if job is not None and job.state is QueryState.FAILED and job.last_failure is not None:
        does_not_run = f" The query is {job.state}: {job.last_failure.message}."
    return ConflictError(
        f"the old query was interrupted in batch {batch_id} after it had delivered some results, "
        f"and has not repeated all of them: the new query would deliver them again.{does_not_run} "
        "Let the old query run, and repeat the change while it runs: the change waits until the "
        "batch is repeated",
        allowed=[],
    )
