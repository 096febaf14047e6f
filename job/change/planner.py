"""Plans a change from the checkpoint of the old query and from Kafka."""

import uuid
from dataclasses import replace

from job.change import files
from job.change.comparison import compare
from job.change.known_offsets import (
    check_not_compacted,
    check_same_topics,
    read_added_partitions,
    read_known_offsets,
)
from job.change.plan import ChangePlan
from job.change.query import Query
from job.change.start_offsets import needed_from_ms, start_offsets
from job.checkpoint.filters import earlier_filters
from job.checkpoint.successor import check_not_changed, read_replay
from job.delivery.commit_topic import check_commit_topic_settings
from job.errors import RequestError
from job.event_time.partitions import Offsets
from job.formats.registration import check_accepted
from job.formats.registry import registry_access
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.preflight import check_topics
from job.plan.plan import JoinPlan
from job.replay.cut import Cut, LateBelow
from job.replay.replay import Replay, expired_before
from job.spec.sides import SIDES


def check_change(old: Query, new: Query, state_partitions: int | None) -> ChangePlan:
    """The plan of the change at this moment. Raises StreamjoinError if the change is refused."""
    check_not_changed(old.checkpoint)
    plan = plan_change(old, new, state_partitions)
    files.check_is_new(new.checkpoint)
    _check_schemas(new.plan)
    check_commit_topic_settings(new.plan, KafkaAdmin(new.read_access()))
    return plan


def _check_schemas(new: JoinPlan) -> None:
    """Raises SpecError if the registry refuses an output schema, so that the query cannot start."""
    for schema in new.output.schemas:
        registry = registry_access(new.schema_registry)
        assert registry is not None, "JoinSpec requires it"
        check_accepted(schema, registry)


def plan_change(
    old: Query, new: Query, state_partitions: int | None, *, is_shadow: bool = False
) -> ChangePlan:
    """The plan of a change after the last batch of the old query.

    `state_partitions`: number for the new query. None: as many as the old query has.
    """
    kafka = KafkaAdmin(new.read_access())
    old_plan = old.read_frozen_plan()
    plan = replace(new.plan, state_partitions=state_partitions or old_plan.state_partitions)
    comparison = compare(old_plan, plan, is_shadow=is_shadow)
    cut, earlier = files.read_cut(old.checkpoint), read_replay(old.checkpoint)
    check_same_topics(kafka, plan, cut.topic_ids)
    check_not_compacted(kafka, plan)
    needed_ms = needed_from_ms(old_plan, plan, cut.watermark_ms)
    known = read_known_offsets(kafka, plan, cut.ends, needed_ms)
    starts = start_offsets(plan, cut, needed_ms, known)
    late, late_unknown_before = _late_rows(old_plan, plan, cut)
    added = read_added_partitions(check_topics(plan, kafka), plan, cut.ends)
    replay = Replay(
        old_checkpoint=old.checkpoint.folder.root,
        old_query_id=cut.query_id,
        old_batch_id=cut.batch.batch_id,
        starts={side: {**starts[side], **added[side]} for side in SIDES},
        ends={side: {**cut.ends[side], **added[side]} for side in SIDES},
        watermark_ms=cut.watermark_ms,
        next_watermark_ms=cut.next_watermark_ms,
        state_partitions=plan.state_partitions,
        event_times=cut.event_times,
        late=late,
        late_unknown_before=late_unknown_before,
        expired=(*comparison.expired, *expired_before(earlier, plan.join_type.outer_sides)),
        topic_ids=_input_ids(plan, cut),
        is_shadow=is_shadow,
        query_id=None if is_shadow else str(uuid.uuid4()),
        first_offsets=cut.first_offsets,
    )
    filters = earlier_filters(old.checkpoint)
    return ChangePlan(plan, comparison, replay, needed_ms, filters=filters[-1] if filters else None)


def _late_rows(old: JoinPlan, new: JoinPlan, cut: Cut) -> tuple[tuple[LateBelow, ...], Offsets]:
    """The rows that were late in the old query, and the offsets before which that is not known. No
    row of a table is left out because it was late."""
    late, unknown_before = cut.late, cut.late_unknown_before
    if not _has_same_event_times(old, new):
        late, unknown_before = (), cut.ends
    if new.table_side is not None:
        unknown_before = {**unknown_before, new.table_side: {}}
    return late, unknown_before


def _has_same_event_times(old: JoinPlan, new: JoinPlan) -> bool:
    """Whether the same time decides in both specs whether a row is late."""
    times = [
        [(plan.side(side).event_time_definition, plan.side(side).time_zone) for side in SIDES]
        for plan in (old, new)
    ]
    return old.window == new.window and times[0] == times[1]


def _input_ids(plan: JoinPlan, cut: Cut) -> dict[str, str]:
    return {name: cut.topic_ids[name] for name in cut.topic_ids if name in plan.input_topics}


def check_state_partitions(requested: int | None, configured: int | None) -> None:
    """`configured`: in the environment of the job. Raises RequestError if a change requests another
    number."""
    if None not in {requested, configured} and requested != configured:
        raise RequestError(
            f"`state_partitions` must not be {requested}: STREAMJOIN_STATE_PARTITIONS of the "
            f"job is {configured}, and the next start of the job would be refused. Remove the "
            "variable, restart the job, and send the change again"
        )
