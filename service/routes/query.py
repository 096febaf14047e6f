"""The query: its state, plan, spec, past batches, failures and offsets."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from job.api.offsets import OffsetsView
from job.api.query import PlanView, QueryView
from job.protocol import calls
from job.protocol.results import FailuresResult, PlanResult, ProgressResult
from service.access import MaySendCommands, authorize_read
from service.routes.dependencies import DENIED, Job, now, problems
from service.schemas.progress import ProgressView

query = APIRouter(
    prefix="/v1/query",
    tags=["query"],
    dependencies=[Depends(authorize_read)],
    responses=problems(**DENIED, s503="The job does not answer."),
)


@query.get("")
async def query_state(job: Job, may_send_commands: MaySendCommands) -> QueryView:
    """State, a diagnosis in one sentence, results, latency, last batch, lag and watermark of each
    side, the side that holds the watermark back, output topic, rows in state, brokers, allowed and
    last commands, last reset, last change, replay after a change, last failure."""
    view = QueryView.of(await job.status(), now())
    return view if may_send_commands else view.model_copy(update={"allowed_commands": []})


@query.get("/plan")
async def plan(job: Job) -> PlanView:
    """The plan as text and as JSON."""
    result = await job.read(calls.Plan(), PlanResult)
    return PlanView(text=result.text, facts=result.facts)


@query.get("/spec")
async def spec(job: Job) -> dict[str, Any]:
    """The running spec without its secrets."""
    return (await job.read(calls.Plan(), PlanResult)).spec


@query.get("/progress")
async def progress(
    job: Job,
    last: Annotated[int, Query(ge=1, le=100, description="Number of batches.")] = 20,
) -> ProgressView:
    """The last batches, oldest first."""
    result = await job.read(calls.Progress(), ProgressResult)
    return ProgressView.of(result.batches[-last:])


@query.get("/failures")
async def failures(job: Job) -> FailuresResult:
    """The last 20 failures since the job started, oldest first."""
    return await job.read(calls.Failures(), FailuresResult)


@query.get("/offsets")
async def offsets(job: Job) -> OffsetsView:
    """Per side and partition: next offset to read, earliest, latest, lag, retention headroom,
    newest event time read.

    The job polls the brokers every few seconds; `answered_at` is the time of their last answer.
    """
    return OffsetsView.of(await job.status())
