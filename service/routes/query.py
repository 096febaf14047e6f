"""The query: its state, plan, spec, past batches, failures and offsets."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from job.protocol import calls
from job.protocol.results import FailuresResult, PlanResult, ProgressResult
from service.access import authorize_read
from service.routes.dependencies import DENIED, Job, now, problems
from service.schemas.offsets import OffsetsView
from service.schemas.progress import ProgressView
from service.schemas.query import PlanView, QueryView

query = APIRouter(
    prefix="/v1/query",
    tags=["query"],
    dependencies=[Depends(authorize_read)],
    responses=problems(**DENIED, s503="The job does not answer."),
)


@query.get("")
async def query_state(job: Job) -> QueryView:
    """State, last batch, lag and watermark of each side, the side that holds the watermark back,
    rows in state, brokers, last reset, last change, replay after a change, last failure."""
    return QueryView.of(await job.status(), now())


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
