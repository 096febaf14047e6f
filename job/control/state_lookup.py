"""Access to the state of the query while it runs or is paused."""

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.state_reader import StateReader
from job.checkpoint.successor import read_replay
from job.control.transitions import ALLOWED
from job.errors import ConflictError
from job.plan.plan import JoinPlan
from job.protocol.status import QueryState
from job.query.runtime import Resources


def state_reader(
    plan: JoinPlan, resources: Resources, state: QueryState
) -> tuple[StateReader, int]:
    """A reader and the last batch that ended.

    Raises ConflictError if Spark does not run or no batch has ended.
    """
    if not resources.has_jvm or state not in {QueryState.RUNNING, QueryState.PAUSED}:
        remedy = "repeat the call once it runs"
        if state is QueryState.STOPPED:
            remedy = "`streamjoin state` reads it from the checkpoint"
        if state is QueryState.FAILED:
            remedy = "after `streamjoin stop`, `streamjoin state` reads it from the checkpoint"
        raise ConflictError(
            "state can be read, and rows explained, while the query is RUNNING or PAUSED; it is "
            f"{state}: {remedy}",
            allowed=list(ALLOWED[state]),
        )
    spark = resources.session()
    checkpoint = Checkpoint(spark, plan.checkpoint)
    batch_id = checkpoint.last_batch_id
    if batch_id is None:
        why = "no batch has ended yet, so the query has read no record"
        remedy = "repeat the call after the first batch"
        if (replay := read_replay(checkpoint)) is not None:
            why = (
                "no batch has ended yet. After the change of the join the query still reads "
                f"{replay.records:,} records again"
            )
            remedy = "repeat the call once `change` of GET /v1/query has the phase `over`"
        raise ConflictError(f"there is no state: {why}: {remedy}", allowed=[])
    return StateReader(spark, plan, checkpoint.query_location), batch_id
