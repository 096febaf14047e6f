"""The hand-over of a change: the new query continues the old one, which is stopped.

The change writes the replay into the new checkpoint, takes the name over in the commit topic, then
marks the old checkpoint as changed. A start with the new spec runs the replay.
"""

from dataclasses import replace

from job.change import files, planner
from job.change.old_query import read_frozen_plan, refusal
from job.change.plan import ChangePlan
from job.change.planner import kafka_admin
from job.checkpoint.checkpoint import Checkpoint
from job.delivery.commit_topic import prepare_commit_topic
from job.delivery.exactly_once import delivery_target, fence_slots, take_name_over
from job.delivery.ownership import newest_delivered
from job.join_spec.output import Delivery
from job.kafka.security import KafkaAccess
from job.plan.plan import JoinPlan
from job.replay.replay import Replay


def hand_over(
    old: JoinPlan,
    new: JoinPlan,
    old_checkpoint: Checkpoint,
    new_checkpoint: Checkpoint,
    state_partitions: int | None,
    texts: files.SpecTexts | None = None,
) -> ChangePlan:
    """Let the new query continue the old one, which is stopped. Both checkpoints are leased.

    `texts`: as for `files.write_successor`. Raises StreamjoinError if the change is refused. The
    old query can then start again.
    """
    plan = planner.check_change(old, new, old_checkpoint, new_checkpoint, state_partitions)
    files.prepare_new(old_checkpoint, new_checkpoint, plan.replay)
    kafka = kafka_admin(new)
    prepare_commit_topic(plan.new, kafka)
    if old.output.delivery is Delivery.EXACTLY_ONCE:
        _stop_deliveries(old, old_checkpoint, kafka.access, last_batch=plan.replay.old_batch_id)
        files.allow_return(old_checkpoint, new_checkpoint)
        _take_name_over(old, new_checkpoint, kafka.access, plan.replay)
    files.write_successor(old_checkpoint, new_checkpoint, texts)
    return plan


def _stop_deliveries(
    old: JoinPlan, checkpoint: Checkpoint, access: KafkaAccess, *, last_batch: int
) -> None:
    """Fence the old query, whose job or tasks may still run, for example after a pause of their
    machine.

    Raises ConflictError if it has delivered anything after its last batch: it was interrupted and
    has not repeated everything, or has delivered after the change has read its checkpoint.
    """
    old = read_frozen_plan(old, checkpoint)
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
