"""Plans a change from the checkpoint of the old query and from Kafka."""

import uuid
from dataclasses import replace

from job.change import files
from job.change.comparison import compare
from job.change.known_offsets import (
    added_partitions,
    check_not_compacted,
    check_same_topics,
    read_known_offsets,
)
from job.change.old_query import read_frozen_plan
from job.change.plan import ChangePlan
from job.change.start_offsets import needed_from_ms, start_offsets
from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.successor import check_not_changed, read_replay
from job.delivery.commit_topic import check_commit_topic_settings
from job.formats.registration import check_accepted
from job.formats.registry import registry_access
from job.join_spec.sides import SIDES
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.preflight import check_topics
from job.kafka.security import kafka_access
from job.plan.plan import JoinPlan
from job.replay.cut import Cut
from job.replay.replay import Replay, expired_before


def check_change(
    old: JoinPlan,
    new: JoinPlan,
    old_checkpoint: Checkpoint,
    new_checkpoint: Checkpoint,
    state_partitions: int | None,
) -> ChangePlan:
    """The plan of the change at this moment. Raises StreamjoinError if the change is refused."""
    check_not_changed(old_checkpoint)
    plan = plan_change(old, new, old_checkpoint, state_partitions)
    files.check_is_new(new_checkpoint)
    _check_schemas(new)
    check_commit_topic_settings(new, kafka_admin(new))
    return plan


def _check_schemas(new: JoinPlan) -> None:
    """Raises SpecError if the registry refuses an output schema, so that the query cannot start."""
    for schema in (new.output.key_schema, new.output.schema):
        if schema is not None:
            registry = registry_access(new.schema_registry)
            assert registry is not None, "JoinSpec requires it"
            check_accepted(schema, registry)


def plan_change(
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
    kafka = kafka_admin(new)
    old = read_frozen_plan(old, checkpoint)
    new = replace(new, state_partitions=state_partitions or old.state_partitions)
    comparison = compare(old, new, is_shadow=is_shadow)
    cut, earlier = files.read_cut(checkpoint), read_replay(checkpoint)
    check_same_topics(kafka, new, cut.topic_ids)
    check_not_compacted(kafka, new)
    needed_ms = needed_from_ms(old, new, cut.watermark_ms)
    known = read_known_offsets(kafka, new, cut.ends, needed_ms)
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
    return ChangePlan(new, comparison, replay, needed_ms)


def _has_same_event_times(old: JoinPlan, new: JoinPlan) -> bool:
    """Whether the same time decides in both specs whether a row is late."""
    return old.window == new.window and all(
        old.side(side).event_time == new.side(side).event_time for side in SIDES
    )


def _input_ids(plan: JoinPlan, cut: Cut) -> dict[str, str]:
    names = {name for side in SIDES for name in plan.side(side).topics.names}
    return {name: topic_id for name, topic_id in cut.topic_ids.items() if name in names}


def kafka_admin(plan: JoinPlan) -> KafkaAdmin:
    return KafkaAdmin(kafka_access(plan.bootstrap_servers, plan.security, plan.schema_registry))
