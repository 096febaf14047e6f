"""The old or the new query of a change."""

from dataclasses import dataclass

from job.change.sent_spec import PlannedSpec
from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.frozen import frozen_settings
from job.errors import CheckpointError
from job.kafka.security import KafkaAccess, kafka_access
from job.plan.fingerprint import STATE_FORMAT, incompatible_changes, recorded_plan
from job.plan.plan import JoinPlan
from job.spark.session import Jvm


@dataclass(frozen=True)
class Query:
    plan: JoinPlan
    checkpoint: Checkpoint

    def read_access(self) -> KafkaAccess:
        plan = self.plan
        return kafka_access(plan.bootstrap_servers, plan.security, plan.schema_registry)

    def read_frozen_plan(self) -> JoinPlan:
        """The plan with what the spec leaves to the checkpoint.

        Raises CheckpointError if the spec of the plan is not the one of the checkpoint.
        """
        root = self.checkpoint.folder.root
        settings = frozen_settings(self.checkpoint, self.plan)
        if settings is None:
            raise CheckpointError(f"{root} contains no checkpoint: check OLD_SPEC")
        # The change does not read the state.
        changes = incompatible_changes(self.plan, settings)
        differing = [change for change in changes if change.field != STATE_FORMAT]
        if differing:
            fields = "; ".join(f"{c.field} {c.frozen}, not {c.wanted}" for c in differing)
            raise CheckpointError(
                f"OLD_SPEC is not the spec of the checkpoint {root}, which has {fields}: pass the "
                "spec that the old job runs with"
            )
        return recorded_plan(self.plan, settings)


@dataclass(frozen=True, eq=False)
class WaitingChange:
    """A change that was accepted, while the old query still runs."""

    sent: PlannedSpec
    state_partitions: int | None


@dataclass(frozen=True)
class Successor:
    """The query that continues after a change."""

    query: PlannedSpec
    jvm: Jvm | None
    """The JVM of the old query. None: the new query needs another one."""
