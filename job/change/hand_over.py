"""The hand-over of a change: the new query continues the old one, which is stopped.

The change writes the replay into the new checkpoint, takes the name over in the commit topic, then
marks the old checkpoint as changed. A start with the new spec runs the replay.
"""

from dataclasses import replace

from job.change import files, planner
from job.change.old_query import refusal
from job.change.plan import ChangePlan
from job.change.query import Query
from job.checkpoint.checkpoint import Checkpoint
from job.delivery.commit_topic import prepare_commit_topic
from job.delivery.exactly_once import delivery_target, fence_slots, take_name_over
from job.delivery.ownership import newest_delivered
from job.kafka.kafka_admin import KafkaAdmin
from job.plan.plan import JoinPlan
from job.replay.replay import Replay
from job.spec.output import Delivery


def hand_over(
    old: Query, new: Query, state_partitions: int | None, texts: files.SpecTexts | None = None
) -> ChangePlan:
    """Let the new query continue the old one, which is stopped. Both checkpoints are leased.

    `texts`: as for `files.write_successor`. Raises StreamjoinError if the change is refused. The
    old query can then start again.
    """
    plan = planner.check_change(old, new, state_partitions)
    files.prepare_new(old.checkpoint, new.checkpoint, plan.replay)
    kafka = KafkaAdmin(new.read_access())
    prepare_commit_topic(plan.new, kafka)
    if old.plan.output.delivery is Delivery.EXACTLY_ONCE:
        _stop_deliveries(old, kafka, last_batch=plan.replay.old_batch_id)
        files.allow_return(old.checkpoint, new.checkpoint)
        _take_name_over(old, new, kafka, plan.replay)
    files.write_successor(old.checkpoint, new.checkpoint, texts)
    return plan


def _stop_deliveries(old: Query, kafka: KafkaAdmin, *, last_batch: int) -> None:
    """Fence the old query, whose job or tasks may still run, for example after a pause of their
    machine.

    Raises ConflictError if it has delivered anything after its last batch: it was interrupted and
    has not repeated everything, or has delivered after the change has read its checkpoint.
    """
    batch_id = fence_and_read_unfinished(
        old.read_frozen_plan(), old.checkpoint, kafka, last_batch=last_batch
    )
    if batch_id is not None:
        raise refusal(batch_id)


def fence_and_read_unfinished(
    plan: JoinPlan, checkpoint: Checkpoint, kafka: KafkaAdmin, *, last_batch: int
) -> int | None:
    """Fence the query, then return the batch as `Delivered.unfinished`. `plan`: with the number of
    state partitions of the checkpoint."""
    target = delivery_target(plan, kafka, checkpoint)
    fence_slots(plan, target, checkpoint.increment_fence())
    delivered = newest_delivered(plan, target, to_the_end=True)
    interval = checkpoint.interrupted_interval
    repeats = None if interval is None else interval.batch_id
    return delivered.unfinished(last_batch, repeats)


def _take_name_over(old: Query, new: Query, kafka: KafkaAdmin, replay: Replay) -> None:
    """Make the new query the owner of the name, so that the old one cannot deliver any more.

    A micro-batch of the old query that begins to deliver after `_stop_deliveries` either ends this
    with an error, or finds the new owner.
    """
    target = delivery_target(old.plan, kafka, new.checkpoint)
    plan = replace(old.plan, state_partitions=replay.state_partitions)
    take_name_over(plan, target, new.checkpoint, replay.last_batches)
