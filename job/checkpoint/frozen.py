"""The frozen settings of a checkpoint, for a plan that starts with it."""

from collections.abc import Mapping

from job.checkpoint.checkpoint import Checkpoint
from job.plan.fingerprint import with_spelling_of
from job.plan.plan import JoinPlan
from job.spark.sql_questions import sql_of


def frozen_settings(checkpoint: Checkpoint, plan: JoinPlan) -> Mapping[str, str] | None:
    """With the expressions as `plan` spells them, where both texts mean the same. None: as for
    `Checkpoint.fingerprint`."""
    frozen = checkpoint.fingerprint
    return frozen and with_spelling_of(plan, frozen, sql_of(checkpoint.folder.spark))
