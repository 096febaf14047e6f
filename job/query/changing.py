"""A change of the join: a new query continues the old one on another checkpoint.

The old query stops between two batches. The change writes the replay into the new checkpoint, takes
the name over in the commit topic, then hands over the old checkpoint. A start with the new spec
runs the replay. `streamjoin change` calls this module, or the job itself (requested_change.py).
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from job.change.comparison import Comparison, compared
from job.change.start_offsets import needed_from_ms, start_offsets
from job.checkpoint import changes
from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.cli import leased, view_checkpoint
from job.delivery.commit_protocol import NO_BATCH, DeliveredAfterCutError
from job.delivery.commit_topic import check_commit_topic_settings, prepare_commit_topic
from job.delivery.exactly_once import delivery_target, fence_slots, take_name_over
from job.delivery.ownership import newest_delivered
from job.errors import CheckpointError, JobUnavailableError, StreamjoinError
from job.event_time.interval import Interval
from job.formats.registration import check_accepted
from job.formats.registry import registry_access
from job.join_spec.output import Delivery
from job.join_spec.sides import SIDES, Side
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.known_offsets import (
    added_partitions,
    check_not_compacted,
    check_same_topics,
    known_offsets,
)
from job.kafka.preflight import check_topics
from job.kafka.security import KafkaAccess, kafka_access
from job.plan.plan import JoinPlan
from job.protocol.caller import call
from job.protocol.calls import Resume, Stop
from job.protocol.status import JobStatus, QueryState
from job.query.old_query import (
    POLL_SECONDS,
    RUNNING,
    await_repetition,
    check_same_query,
    frozen,
    interval_to_repeat,
    job_of,
    refusal,
    seconds_to_stop,
)
from job.replay.cut import Cut
from job.replay.replay import Replay, expired_before
from job.settings import JobSettings
from job.waiting import wait_until


@dataclass(frozen=True)
class ChangePlan:
    comparison: Comparison
    replay: Replay
    needed_ms: dict[Side, int]
    late_rows: int | None = None
    """Late rows that the running job has counted since its start. None: it does not answer."""
    repeats: Interval | None = None
    """The interrupted interval that the old query repeats before the change."""


def plan_change(
    old: JoinPlan, new: JoinPlan, settings: JobSettings, *, is_shadow: bool = False
) -> ChangePlan:
    """The plan of a change at this moment. The old query may run. `is_shadow`: as `shadow`."""
    compared(old, new, is_shadow=is_shadow)
    with view_checkpoint(old, settings) as opened:
        made = planned(old, new, opened.checkpoint, settings.state_partitions, is_shadow=is_shadow)
        job = job_of(old, settings)
        if not is_shadow:
            made = replace(made, repeats=interval_to_repeat(old, opened.checkpoint, job))
    return replace(made, late_rows=None if job is None else job.totals.late_rows)


def change(
    old: JoinPlan,
    new: JoinPlan,
    settings: JobSettings,
    progress: Callable[[str], None] = lambda _: None,
) -> ChangePlan | None:
    """Make the change. None: the change is already complete.

    `progress`: called with lines for the user. Raises StreamjoinError if the change is refused. The
    old query can then start again.
    """
    compared(old, new)
    with _both(old, new, settings) as (old_checkpoint, new_checkpoint):
        if changes.successor(old_checkpoint) == new_checkpoint.folder.root:
            return None
        # The old query stops only if the change is possible.
        checked(old, new, old_checkpoint, new_checkpoint, settings.state_partitions)
        if await_repetition(old, old_checkpoint, settings, progress):
            checked(old, new, old_checkpoint, new_checkpoint, settings.state_partitions)
        stopped = _stopped_job(old, old_checkpoint, settings)
        with leased(new_checkpoint), stopped, leased(old_checkpoint):
            return hand_over(old, new, old_checkpoint, new_checkpoint, settings.state_partitions)


def checked(
    old: JoinPlan,
    new: JoinPlan,
    old_checkpoint: Checkpoint,
    new_checkpoint: Checkpoint,
    state_partitions: int | None,
) -> ChangePlan:
    """The plan of the change at this moment. Raises StreamjoinError if the change is refused."""
    changes.check_not_changed(old_checkpoint)
    made = planned(old, new, old_checkpoint, state_partitions)
    changes.check_is_new(new_checkpoint)
    _check_schemas(new)
    check_commit_topic_settings(new, _kafka(new))
    return made


def _check_schemas(new: JoinPlan) -> None:
    """Raises SpecError if the registry refuses an output schema, so that the query cannot start."""
    for schema in (new.output.key_schema, new.output.schema):
        if schema is not None:
            registry = registry_access(new.schema_registry)
            assert registry is not None, "JoinSpec requires it"
            check_accepted(schema, registry)


def hand_over(
    old: JoinPlan,
    new: JoinPlan,
    old_checkpoint: Checkpoint,
    new_checkpoint: Checkpoint,
    state_partitions: int | None,
    texts: changes.SpecTexts | None = None,
) -> ChangePlan:
    """Let the new query continue the old one, which is stopped. Both checkpoints are leased.

    `texts`: as for `changes.hand_over`. Raises StreamjoinError if the change is refused. The old
    query can then start again.
    """
    access = _access(new)
    made = checked(old, new, old_checkpoint, new_checkpoint, state_partitions)
    changes.prepare_new(old_checkpoint, new_checkpoint, made.replay)
    prepare_commit_topic(replace(new, state_partitions=made.replay.state_partitions), _kafka(new))
    if old.output.delivery is Delivery.EXACTLY_ONCE:
        _stop_deliveries(old, old_checkpoint, access, last_batch=made.replay.old_batch_id)
        changes.allow_return(old_checkpoint, new_checkpoint)
        _take_name_over(old, new_checkpoint, access, made.replay)
    changes.hand_over(old_checkpoint, new_checkpoint, texts)
    return made


def shadow(old: JoinPlan, new: JoinPlan, settings: JobSettings) -> ChangePlan:
    """Prepare a query that runs next to the old one, with the state of the old one."""
    compared(old, new, is_shadow=True)
    with _both(old, new, settings) as (old_checkpoint, new_checkpoint), leased(new_checkpoint):
        changes.check_not_changed(old_checkpoint)
        made = planned(old, new, old_checkpoint, settings.state_partitions, is_shadow=True)
        changes.prepare_shadow(new_checkpoint, made.replay)
    return made


def undo(old: JoinPlan, new: JoinPlan, settings: JobSettings) -> None:
    """Let the old query run at its next start. Raises ConflictError if the new query may have
    delivered results."""
    with _both(old, new, settings) as (old_checkpoint, new_checkpoint):
        changes.check_undo(old_checkpoint, new_checkpoint)
        with _stopped_job(new, new_checkpoint, settings), leased(new_checkpoint):
            take_back(old, new, old_checkpoint, new_checkpoint)


def take_back(
    old: JoinPlan, new: JoinPlan, old_checkpoint: Checkpoint, new_checkpoint: Checkpoint
) -> None:
    """Let the old query continue instead of the new one, which is stopped and whose checkpoint is
    leased. Raises ConflictError as `check_undo`. The new query can then start again.

    If this process was suspended, both leases have expired, and another job may run the new query.
    """
    with leased(old_checkpoint):
        last = new_checkpoint.last_planned_batch_id  # The check is about all batches up to it.
        changes.check_undo(old_checkpoint, new_checkpoint)
        take = partial(_take_name_back, old, new, old_checkpoint, new_checkpoint, last)
        with _name_released(new, new_checkpoint):
            changes.allow_return(old_checkpoint, new_checkpoint)
            take()
            old_checkpoint.desired_state = QueryState.RUNNING  # `change` has stopped it.
            changes.check_undo(old_checkpoint, new_checkpoint)
            with changes.taken_back(old_checkpoint):
                take()  # The new query may have started, and delivered, after the check.


@contextmanager
def _name_released(new: JoinPlan, new_checkpoint: Checkpoint) -> Iterator[None]:
    """Allows the new query to take its name back after a crash, and after an error in the block."""
    if new.output.delivery is not Delivery.EXACTLY_ONCE:
        yield
        return
    new_checkpoint.release_name()
    try:
        yield
    except StreamjoinError:
        # It may have started meanwhile and taken all slots, of which the block has taken some.
        new_checkpoint.release_name()
        raise


@contextmanager
def _both(
    old: JoinPlan, new: JoinPlan, settings: JobSettings
) -> Iterator[tuple[Checkpoint, Checkpoint]]:
    with view_checkpoint(old, settings) as opened:
        yield opened.checkpoint, Checkpoint(opened.spark, new.checkpoint)


def planned(
    old: JoinPlan,
    new: JoinPlan,
    checkpoint: Checkpoint,
    state_partitions: int | None,
    *,
    is_shadow: bool = False,
) -> ChangePlan:
    """The plan of a change after the last batch of `checkpoint`.

    `state_partitions`: number for the new query. None: as many as the old query has.
    """
    kafka = _kafka(new)
    old = frozen(old, checkpoint)
    new = replace(new, state_partitions=state_partitions or old.state_partitions)
    comparison = compared(old, new, is_shadow=is_shadow)
    cut, earlier = changes.read_cut(checkpoint), changes.read_replay(checkpoint)
    check_same_topics(kafka, new, cut.topic_ids)
    check_not_compacted(kafka, new)
    needed_ms = needed_from_ms(old, new, cut.watermark_ms)
    known = known_offsets(kafka, new, cut.ends, needed_ms)
    starts = start_offsets(new, cut, needed_ms, known)
    knows_late_rows = _has_same_event_times(old, new)
    added = added_partitions(check_topics(new, kafka), new, cut.ends)
    replay = Replay(
        old_checkpoint=checkpoint.folder.root,
        old_query_id=cut.query_id,
        old_batch_id=cut.batch.batch_id,
        starts={side: {**starts[side], **added[side]} for side in SIDES},
        ends={side: {**cut.ends[side], **added[side]} for side in SIDES},
        watermark_ms=cut.watermark_ms,
        next_watermark_ms=cut.next_watermark_ms,
        state_partitions=new.state_partitions,
        event_times=cut.event_times,
        late=cut.late if knows_late_rows else (),
        late_unknown_before=cut.late_unknown_before if knows_late_rows else cut.ends,
        expired=(*comparison.expired, *expired_before(earlier, new.join_type.outer_sides)),
        topic_ids=_input_ids(new, cut),
        is_shadow=is_shadow,
        query_id=None if is_shadow else str(uuid.uuid4()),
        first_offsets=cut.first_offsets,
    )
    return ChangePlan(comparison, replay, needed_ms)


def _has_same_event_times(old: JoinPlan, new: JoinPlan) -> bool:
    """Whether the same time decides in both specs whether a row is late."""
    return old.window == new.window and all(
        old.side(side).event_time == new.side(side).event_time for side in SIDES
    )


def _input_ids(plan: JoinPlan, cut: Cut) -> dict[str, str]:
    names = {name for side in SIDES for name in plan.side(side).topics.names}
    return {name: topic_id for name, topic_id in cut.topic_ids.items() if name in names}


def _stop_deliveries(
    old: JoinPlan, checkpoint: Checkpoint, access: KafkaAccess, *, last_batch: int
) -> None:
    """Fence the old query, whose job or tasks may still run, for example after a pause of their
    machine.

    Raises ConflictError if it has delivered anything after its last batch: it was interrupted and
    has not repeated everything, or has delivered after the change has read its checkpoint.
    """
    old = frozen(old, checkpoint)
    target = delivery_target(old, access, checkpoint)
    fence_slots(old, target, checkpoint.increment_fence())
    delivered = newest_delivered(old, target, to_the_end=True)
    interval = checkpoint.interrupted_interval
    repeats = None if interval is None else interval.batch_id
    if (batch_id := delivered.unfinished(last_batch, repeats)) is not None:
        raise refusal(batch_id)


def _take_name_over(
    old: JoinPlan, new_checkpoint: Checkpoint, access: KafkaAccess, replay: Replay
) -> None:
    """Make the new query the owner of the name, so that the old one cannot deliver any more.

    A micro-batch of the old query that begins to deliver after `_stop_deliveries` either ends this
    with an error, or finds the new owner.
    """
    target = delivery_target(old, access, new_checkpoint)
    plan = replace(old, state_partitions=replay.state_partitions)
    take_name_over(plan, target, new_checkpoint, replay.last_batches)


def _take_name_back(
    old: JoinPlan,
    new: JoinPlan,
    old_checkpoint: Checkpoint,
    new_checkpoint: Checkpoint,
    last_batch: int | None,
) -> None:
    """Make the old query the owner of the name, so that the new one cannot deliver any more.

    `last_batch`: the last one of the new query whose results are kept back. None: there is none.
    Raises ConflictError if the new query has delivered a later batch.
    """
    if new.output.delivery is not Delivery.EXACTLY_ONCE:
        return
    target = delivery_target(new, _access(new), old_checkpoint)
    last_batches = {new_checkpoint.query_id: NO_BATCH if last_batch is None else last_batch}
    try:
        take_name_over(frozen(old, old_checkpoint), target, old_checkpoint, last_batches)
    except CheckpointError as error:
        if isinstance(error.__cause__, DeliveredAfterCutError):
            raise changes.undo_is_too_late(new_checkpoint) from error
        raise


@contextmanager
def _stopped_job(plan: JoinPlan, checkpoint: Checkpoint, settings: JobSettings) -> Iterator[None]:
    """Stops the query of the job on the control socket, if the job has the name of `plan`. If this
    or the block fails, a query that ran before continues.

    The job refuses both commands if it runs another query than that of `checkpoint`, for example
    because another client has changed the join since the check of the change.
    """
    job = job_of(plan, settings)
    if job is not None and job.state is not QueryState.STOPPED:
        check_same_query(job, checkpoint)
    by, query_id = "streamjoin change", checkpoint.query_id
    try:
        _stop_job(job, plan, settings, Stop(by=by, query_id=query_id, completes_interval=True))
        yield
    except BaseException:
        if job is not None and job.state in RUNNING:
            with suppress(StreamjoinError, OSError):  # the job may have ended
                call(settings.socket, Resume(by=by, query_id=query_id))
        raise


def _stop_job(job: JobStatus | None, plan: JoinPlan, settings: JobSettings, stop: Stop) -> None:
    """Stop the query of a job. `job`: its status. None: no job runs."""
    if job is None or job.state is QueryState.STOPPED:
        return
    with suppress(OSError):  # the job has ended since
        call(settings.socket, stop)

    def has_stopped() -> bool:
        now = job_of(plan, settings)
        return now is None or now.state is QueryState.STOPPED

    seconds = seconds_to_stop(plan, settings)
    if not wait_until(has_stopped, seconds, POLL_SECONDS):
        raise JobUnavailableError(
            f"the job on {settings.socket} did not stop within {seconds:.0f} s: check its log, "
            "then repeat the change"
        )


def _access(plan: JoinPlan) -> KafkaAccess:
    return kafka_access(plan.bootstrap_servers, plan.security, plan.schema_registry)


def _kafka(plan: JoinPlan) -> KafkaAdmin:
    return KafkaAdmin(_access(plan))
