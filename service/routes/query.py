"""What the query is doing, what it has done, and by which plan."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from job.protocol.control import Request as Question
from job.protocol.results import FailuresResult, PlanResult, ProgressResult
from service.access import reader
from service.history import FailuresView, OffsetsView, PlanView, ProgressView
from service.routes.dependencies import REFUSED, Job, now, problems
from service.views import QueryView

query = APIRouter(
    prefix="/v1/query",
    tags=["query"],
    dependencies=[Depends(reader)],
    responses=problems(**REFUSED, s503="The job does not answer."),
)


@query.get("")
async def query_state(job: Job) -> QueryView:
    """What the query is doing: state, last batch, lag, watermark, rows waiting, last failure."""
    return QueryView.of(await job.status(), now())


@query.get("/plan")
async def plan(job: Job) -> PlanView:
    """What the join does, in words and as facts: as `streamjoin plan` says it."""
    answer = await job.ask(Question(call="plan"), PlanResult)
    return PlanView(text=answer.text, facts=answer.facts)


@query.get("/spec")
async def spec(job: Job) -> dict[str, Any]:
    """The spec at work, its secrets left out."""
    return (await job.ask(Question(call="plan"), PlanResult)).spec


@query.get("/progress")
async def progress(
    job: Job,
    last: Annotated[int, Query(ge=1, le=100, description="How many batches.")] = 20,
) -> ProgressView:
    """The last batches, oldest first."""
    answer = await job.ask(Question(call="progress"), ProgressResult)
    return ProgressView.of(answer.batches[-last:])


@query.get("/failures")
async def failures(job: Job) -> FailuresView:
    """The last 20 failures of the query since the job started, oldest first."""
    answer = await job.ask(Question(call="failures"), FailuresResult)
    return FailuresView.of(answer.failures)


@query.get("/offsets")
async def offsets(job: Job) -> OffsetsView:
    """How far each partition is read, and where it begins and ends.

    As of the job's last look at the brokers, some seconds ago, or at `answered_at` where they have
    not answered since.
    """
    return OffsetsView.of(await job.status())
