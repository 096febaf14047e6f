"""Everything between the lease of the checkpoint and the start of the query."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime

import structlog
from pyspark.sql import SparkSession

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.filters import record_filters
from job.checkpoint.maintenance import remove_temporary_files, repair_logs
from job.checkpoint.skipped import read_skipped
from job.checkpoint.successor import check_not_changed, read_replay_to_run
from job.dataflow.written import TopicLimits
from job.delivery.commit_topic import create_commit_topic_if_used
from job.delivery.topic_limits import limits_of
from job.errors import CheckpointError
from job.event_time.filters import EarlierFilters
from job.event_time.partitions import Offsets, labelled
from job.formats.pinning import check_schema_evolution
from job.formats.registration import ensure_registered
from job.formats.registry import RegistryAccess
from job.formats.schemas import OutputSchema
from job.instants import from_epoch_ms, to_epoch_ms
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.preflight import TopicsSnapshot, check_topics
from job.kafka.retention import check_added_topics, check_retention, next_offsets
from job.kafka.security import KafkaAccess
from job.kafka.topic_ids import TopicIdentity
from job.kafka.topic_patterns import with_matching_topics
from job.plan.fingerprint import fingerprint, recorded_plan, recorded_topics, with_added_topics
from job.plan.plan import JoinPlan
from job.protocol.reports import FilterChangeReport
from job.protocol.status import QueryState
from job.query.cluster import (
    check_executors,
    check_is_shared,
    check_partitions_are_chosen,
    check_slots,
    slots_of_interval,
    wait_for_executors,
)
from job.query.stats import QueryStats
from job.replay.replay import Replay, has_complete_state
from job.settings import JobSettings
from job.spec.sides import Side
from job.spec.source_topics import SourceTopics

_log = structlog.get_logger()


class Preparation:
    def __init__(
        self,
        plan: JoinPlan,
        settings: JobSettings,
        stats: QueryStats,
        identity: TopicIdentity,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._stats = stats
        self._identity = identity
        self.frozen: Mapping[str, str] | None = None
        """Settings frozen in the checkpoint. None: there is no checkpoint, or it is not read yet.
        Also set if the checkpoint refuses the start."""
        self.filter_change: FilterChangeReport | None = None

    def plan_of_run(self, topics: Mapping[Side, SourceTopics]) -> JoinPlan:
        """The plan with the settings of the checkpoint, if it was read, and with these topics."""
        plan = self._plan if self.frozen is None else recorded_plan(self._plan, self.frozen)
        return plan.with_topics(topics)

    def desired_state(self, checkpoint: Checkpoint) -> QueryState:
        """The state that the last job has stored. Raises CheckpointError if a change has stopped
        the query, and the process would stay up without one."""
        state = checkpoint.desired_state
        if state is QueryState.STOPPED and not self._settings.keep_running:
            check_not_changed(checkpoint)
        return state

    def check_topics(self, access: KafkaAccess) -> TopicsSnapshot:
        """The topics of the spec, without those of patterns. Runs while the JVM starts."""
        return check_topics(self._plan, KafkaAdmin(access))

    def prepare(
        self,
        spark: SparkSession,
        checkpoint: Checkpoint,
        access: KafkaAccess,
        checked: "Future[TopicsSnapshot]",
    ) -> tuple[JoinPlan, TopicLimits]:
        """The plan of this run: with its state partitions, start positions and topic partitions,
        the partitions of the output topic, and the ids of the output schemas.

        `checked`: the result of `check_topics`. Raises StreamjoinError if the checkpoint, the
        cluster or a topic does not allow the run.
        """
        now = datetime.now(UTC)
        for name in repair_logs(checkpoint.folder, now):
            _log.warning("checkpoint_repaired", file=name)
        if temporary := remove_temporary_files(checkpoint.folder, now):
            _log.info("temporary_files_removed", files=len(temporary))
        check_not_changed(checkpoint)
        replay = read_replay_to_run(checkpoint)
        if self._settings.is_on_cluster:
            check_is_shared(checkpoint.folder, self._settings)
        plan, topics = self._plan, None
        if plan.has_topic_patterns:
            plan, topics = self._with_found_topics(checkpoint, checked.result().kafka)
        plan = self._freeze_settings(plan, checkpoint, access.registry, replay)
        if replay is not None:
            checkpoint.ensure_query_id()  # Spark would choose another id than the change
        if self._settings.is_on_cluster:
            if plan.real_time is not None:
                plan = (topics or checked.result()).plan_with_partitions(plan)
            _check_cluster(spark, plan, checkpoint)
        spark.conf.set("spark.sql.shuffle.partitions", plan.state_partitions)
        self._stats.on_start(checkpoint.last_batch_id, checkpoint.offsets, plan.topics)
        self._stats.on_skipped(read_skipped(checkpoint))
        topics = topics or checked.result()
        plan = topics.plan_with_partitions(plan)
        if (starts := checkpoint.start_positions) is not None:
            plan = plan.starting_at(starts)
        self._check_unread_records(checkpoint, plan, topics.kafka, replay)
        changed = record_filters(checkpoint, plan, to_epoch_ms(now))
        self.filter_change = None if changed is None else _filter_change(changed, plan.topics)
        return _with_output_schemas(plan, access.registry), limits_of(topics)

    def _with_found_topics(
        self, checkpoint: Checkpoint, kafka: KafkaAdmin
    ) -> tuple[JoinPlan, TopicsSnapshot]:
        """The plan with the topics of its patterns, and all its topics.

        The topics are read after the checkpoint: another job, whose lease has ended since, may have
        added a topic to it.

        All checks of an added topic come before the checkpoint freezes it, so that a topic that is
        refused can be excluded from the pattern.
        """
        plan = with_matching_topics(self._plan, self.frozen, kafka)
        topics = check_topics(plan, kafka)
        plan = topics.plan_with_partitions(plan)
        if checkpoint.has_begun:
            check_added_topics(plan, recorded_topics(self._plan, self.frozen), kafka)
        return plan, topics

    def _freeze_settings(
        self,
        plan: JoinPlan,
        checkpoint: Checkpoint,
        registry: RegistryAccess | None,
        replay: Replay | None,
    ) -> JoinPlan:
        """The plan with what the spec leaves to the checkpoint, or to the change."""
        frozen, wanted = self.frozen, self._settings.state_partitions
        if frozen is not None:
            recorded = recorded_plan(plan, frozen)
            plan = replace(recorded, state_partitions=wanted or recorded.state_partitions)
        elif replay is not None:
            _check_partitions_of_change(checkpoint, replay, wanted)
            plan = replace(plan, state_partitions=replay.state_partitions)
        elif self._settings.is_on_cluster:
            check_partitions_are_chosen(self._settings)
        if frozen is not None and registry is not None:
            frozen = check_schema_evolution(frozen, plan.readers, registry)
        if frozen is not None:
            frozen = with_added_topics(frozen, plan)
        checkpoint.freeze(frozen, fingerprint(plan))
        self.frozen = fingerprint(plan)
        return plan

    def _check_unread_records(
        self,
        checkpoint: Checkpoint,
        plan: JoinPlan,
        kafka: KafkaAdmin,
        replay: Replay | None,
    ) -> None:
        """Check that the topics have the ids in the checkpoint, and still have its unread records.

        Records the ids of topics that the checkpoint does not contain, and creates the commit
        topic. If a topic is created again between this check and Spark's first read, the broker
        watch detects it, because it compares with the same ids. Raises RetentionError,
        CheckpointError, TopicError or BrokerError.
        """
        recorded = checkpoint.topic_ids
        read: Offsets | None = checkpoint.offsets
        has_state = has_complete_state(read, replay)
        if replay is not None:
            recorded, read = recorded or replay.topic_ids, read or replay.starts
        ids = self._identity.begin(
            plan, kafka, recorded, lambda: create_commit_topic_if_used(plan, kafka)
        )
        if ids != checkpoint.topic_ids:
            checkpoint.topic_ids = ids
        unread = next_offsets(plan, read, checkpoint.start_positions)
        check_retention(plan, kafka, unread, has_state=has_state)


def _filter_change(
    changed: EarlierFilters, topics: Mapping[Side, SourceTopics]
) -> FilterChangeReport:
    return FilterChangeReport(
        changed_at=from_epoch_ms(changed.until_ms), offsets=labelled(changed.offsets, topics)
    )


def _check_partitions_of_change(checkpoint: Checkpoint, replay: Replay, wanted: int | None) -> None:
    """Raises CheckpointError if `wanted` is another number than that of the change."""
    if wanted not in {None, replay.state_partitions}:
        raise CheckpointError(
            f"STREAMJOIN_STATE_PARTITIONS is {wanted}, and `streamjoin change` has prepared "
            f"{checkpoint.folder.root} for {replay.state_partitions} state partitions: remove the "
            f"variable or set it to {replay.state_partitions}; or undo the change with `streamjoin "
            "change OLD_SPEC NEW_SPEC --undo`, then repeat it with another `checkpoint`"
        )


def _check_cluster(spark: SparkSession, plan: JoinPlan, checkpoint: Checkpoint) -> None:
    is_real_time = plan.real_time is not None
    wait_for_executors(spark, slots_of_interval(plan) if is_real_time else plan.state_partitions)
    check_executors(spark, checkpoint.folder)
    if is_real_time:
        check_slots(spark, plan)


def _with_output_schemas(plan: JoinPlan, registry: RegistryAccess | None) -> JoinPlan:
    """The plan with the ids of the output schemas. The last step before the start, because only a
    query that starts registers its schemas."""

    def with_id(schema: OutputSchema | None) -> OutputSchema | None:
        if schema is None:
            return None
        assert registry is not None, "JoinSpec requires it"
        return ensure_registered(schema, registry)

    output = plan.output
    key_schema, schema = with_id(output.key_schema), with_id(output.schema)
    return replace(plan, output=replace(output, key_schema=key_schema, schema=schema))
