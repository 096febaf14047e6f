"""`streamjoin change`: from the old query to a new one on another checkpoint.

The old query stops between two batches. What the new one reads again is written into its
checkpoint, then the old checkpoint is handed over. `streamjoin run` with the new spec does the
rest.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from job.change.comparison import Comparison, compared
from job.change.cut import Cut
from job.change.replay import Replay
from job.change.start_offsets import needed_from_ms, start_offsets
from job.checkpoint import changes
from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.cli import leased, view_checkpoint
from job.delivery.commit_topic import add_missing_partitions
from job.delivery.markers import MarkerReader, marker_key
from job.errors import CheckpointError, ConflictError, JobUnavailableError
from job.join_spec.output import Delivery
from job.join_spec.sides import SIDES, Side
from job.kafka.known_offsets import added_partitions, check_same_topics, known_offsets
from job.kafka.preflight import check_topics
from job.kafka.security import KafkaAccess, kafka_access, librdkafka_settings
from job.plan.fingerprint import incompatible_changes
from job.plan.plan import JoinPlan
from job.protocol.caller import call, running_job
from job.protocol.control import Request
from job.protocol.status import QueryState
from job.settings import JobSettings
from job.waiting import wait_until

_POLL_SECONDS = 0.2
# A stop waits for the batch, and interrupts it after the grace period.
_STOP_SECONDS_MORE = 60.0


@dataclass(frozen=True)
class ChangePlan:
    comparison: Comparison
    replay: Replay
    needed_ms: dict[Side, int]
    late_rows: int | None = None
    """Late rows that the running job has counted since its start. None: it does not answer."""


def plan_change(old: JoinPlan, new: JoinPlan, settings: JobSettings) -> ChangePlan:
    """What a change would do now. The old query may run."""
    compared(old, new)
    with view_checkpoint(old, settings) as opened:
        made = _planned(old, new, opened.checkpoint)
    job = running_job(settings.socket)
    if job is None or job.name != old.name:
        return made
    return replace(made, late_rows=job.totals.late_rows)


def change(old: JoinPlan, new: JoinPlan, settings: JobSettings) -> ChangePlan | None:
    """Make the change. None: it was made before.

    Raises StreamjoinError if the change is refused; then the old query may start again.
    """
    compared(old, new)
    with _both(old, new, settings) as (old_checkpoint, new_checkpoint):
        if changes.successor(old_checkpoint) == new_checkpoint.folder.root:
            return None
        # Everything that can be refused is refused before the old query stops.
        changes.check_not_changed(old_checkpoint)
        changes.check_is_new(new_checkpoint)
        _planned(old, new, old_checkpoint)
        _stop_job(old, settings)
        with leased(old_checkpoint), leased(new_checkpoint):
            changes.check_not_changed(old_checkpoint)
            made = _planned(old, new, old_checkpoint)
            access = _access(new)
            _check_batch_is_complete(old, old_checkpoint, access)
            changes.prepare_new(new_checkpoint, made.replay)
            add_missing_partitions(new, access)
            changes.hand_over(old_checkpoint, new_checkpoint)
    return made


def undo(old: JoinPlan, new: JoinPlan, settings: JobSettings) -> None:
    """Let the old query start again. Raises ConflictError once the new one may have delivered."""
    with _both(old, new, settings) as (old_checkpoint, new_checkpoint):
        if changes.successor(old_checkpoint) != new_checkpoint.folder.root:
            raise ConflictError(
                f"{old_checkpoint.folder.root} was not changed to {new_checkpoint.folder.root}: "
                "there is nothing to undo",
                allowed=[],
            )
        _check_undelivered(new_checkpoint)
        _stop_job(new, settings)
        with leased(old_checkpoint), leased(new_checkpoint):
            _check_undelivered(new_checkpoint)
            if new_checkpoint.folder.exists("query/metadata"):
                old_checkpoint.replace_queries([new_checkpoint.query_id])
                # The markers of the old query may be overwritten; its last batch has ended.
                old_checkpoint.end_exactly_once()
            changes.take_back(old_checkpoint)


def _check_undelivered(new: Checkpoint) -> None:
    if changes.has_delivered(new):
        raise ConflictError(
            f"the query of {new.folder.root} has begun to deliver results after the cut, so the "
            "old query would deliver them again. To return to the old spec, change from the new "
            "spec to the old one, with another `checkpoint`",
            allowed=[],
        )


@contextmanager
def _both(
    old: JoinPlan, new: JoinPlan, settings: JobSettings
) -> Iterator[tuple[Checkpoint, Checkpoint]]:
    with view_checkpoint(old, settings) as opened:
        yield opened.checkpoint, Checkpoint(opened.spark, new.checkpoint)


def _planned(old: JoinPlan, new: JoinPlan, checkpoint: Checkpoint) -> ChangePlan:
    access = _access(new)
    old = _frozen(old, checkpoint)
    comparison = compared(old, new)
    cut = changes.read_cut(checkpoint)
    check_same_topics(new, access, cut.topic_ids)
    needed_ms = needed_from_ms(old, new, cut.watermark_ms)
    known = known_offsets(new, access, cut.ends, needed_ms)
    starts = start_offsets(new, cut, needed_ms, known)
    knows_late_rows = _has_same_event_times(old, new)
    added = added_partitions(new, access, cut.ends, check_topics(new, access))
    replay = Replay(
        old_checkpoint=checkpoint.folder.root,
        old_query_id=cut.query_id,
        old_batch_id=cut.batch.batch_id,
        starts={side: {**starts[side], **added[side]} for side in SIDES},
        ends={side: {**cut.ends[side], **added[side]} for side in SIDES},
        watermark_ms=cut.watermark_ms,
        next_watermark_ms=cut.next_watermark_ms,
        event_times=cut.event_times,
        late=cut.late if knows_late_rows else (),
        late_unknown_before=cut.late_unknown_before if knows_late_rows else cut.ends,
        expired=comparison.expired,
        topic_ids=_input_ids(new, cut),
    )
    return ChangePlan(comparison, replay, needed_ms)


def _frozen(old: JoinPlan, checkpoint: Checkpoint) -> JoinPlan:
    """The old plan with the number of state partitions of its checkpoint.

    Raises CheckpointError if the old spec is not the one of the checkpoint.
    """
    frozen = checkpoint.fingerprint
    if frozen is None:
        raise CheckpointError(f"{checkpoint.folder.root} contains no checkpoint: check OLD_SPEC")
    differing = incompatible_changes(old, frozen)
    if differing:
        fields = "; ".join(f"{c.field} {c.frozen}, not {c.wanted}" for c in differing)
        raise CheckpointError(
            f"OLD_SPEC is not the spec of the checkpoint {checkpoint.folder.root}, which has "
            f"{fields}: pass the spec that the old job runs with"
        )
    return replace(old, state_partitions=int(frozen["state_partitions"]))


def _has_same_event_times(old: JoinPlan, new: JoinPlan) -> bool:
    """Whether a row is late by the same time under both specs."""
    return old.window == new.window and all(
        old.side(side).event_time == new.side(side).event_time for side in SIDES
    )


def _input_ids(plan: JoinPlan, cut: Cut) -> dict[str, str]:
    names = {name for side in SIDES for name in plan.side(side).topics.names}
    return {name: topic_id for name, topic_id in cut.topic_ids.items() if name in names}


def _check_batch_is_complete(old: JoinPlan, checkpoint: Checkpoint, access: KafkaAccess) -> None:
    """Raises ConflictError if a batch was interrupted after it had delivered some of its results.

    With at-least-once delivery its results may be delivered twice, as after each interruption.
    """
    batch_id = changes.uncommitted_batch(checkpoint)
    if batch_id is None or old.output.delivery is not Delivery.EXACTLY_ONCE:
        return
    topic, name = old.output.commit_topic, old.name
    reader = MarkerReader(librdkafka_settings(access), topic, f"streamjoin-{name}")
    for partition in range(min(old.state_partitions, reader.partitions)):
        marker = reader.newest(partition, marker_key(name, str(partition)), to_the_end=True)
        if marker is not None and marker.batch_id >= batch_id:
            raise ConflictError(
                f"the old query was interrupted in batch {batch_id}, of which some results are "
                "delivered: start the old job, `stop` it, then repeat the change",
                allowed=[],
            )


def _stop_job(plan: JoinPlan, settings: JobSettings) -> None:
    """Stop the query of the job on the control socket, if it is the one of `plan`."""
    status = running_job(settings.socket)
    if status is None or status.name != plan.name or status.state is QueryState.STOPPED:
        return
    call(settings.socket, Request(call="stop", by="streamjoin change"))

    def has_stopped() -> bool:
        now = running_job(settings.socket)
        return now is None or now.state is QueryState.STOPPED

    seconds = settings.grace_seconds + _STOP_SECONDS_MORE
    if not wait_until(has_stopped, seconds, _POLL_SECONDS):
        raise JobUnavailableError(
            f"the job on {settings.socket} did not stop within {seconds:.0f} s: check its log, "
            "then repeat the change"
        )


def _access(plan: JoinPlan) -> KafkaAccess:
    return kafka_access(plan.bootstrap_servers, plan.security, plan.schema_registry)
