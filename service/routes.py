"""The calls of the HTTP API. Each asks the job once and puts the answer in the API's terms."""

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response

from job.control import Verb
from job.errors import JobUnavailableError
from job.progress import JobStatus
from service import health
from service.access import Controller
from service.health import Check, Health
from service.job_client import JobClient
from service.metrics import exposition
from service.problems import Problem, problem
from service.settings import ServiceSettings
from service.views import QueryView


async def job_client(request: Request) -> JobClient:
    client: JobClient = request.app.state.job
    return client


async def service_settings(request: Request) -> ServiceSettings:
    settings: ServiceSettings = request.app.state.settings
    return settings


async def job_answer(job: Annotated[JobClient, Depends(job_client)]) -> "Answer":
    """For calls that have something to say without the job, too."""
    try:
        return await job.status()
    except JobUnavailableError as error:
        return error


Job = Annotated[JobClient, Depends(job_client)]
Settings = Annotated[ServiceSettings, Depends(service_settings)]
Answer = JobStatus | JobUnavailableError
JobAnswer = Annotated[Answer, Depends(job_answer)]


def _problems(**reasons: str) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: `_problems(s503="the job does not answer")`."""
    return {
        int(status.removeprefix("s")): {"model": Problem, "description": reason}
        for status, reason in reasons.items()
    }


query = APIRouter(
    prefix="/v1/query", tags=["query"], responses=_problems(s503="The job does not answer.")
)
control = APIRouter(
    prefix="/v1/query",
    tags=["control"],
    responses=_problems(
        s403="Commands are not taken from here.",
        s409="The query's state forbids the command; `allowed` lists the others.",
        s413="The body is too large.",
        s503="The job does not answer.",
    ),
)
operations = APIRouter(tags=["operations"])


@query.get("")
async def query_state(job: Job) -> QueryView:
    """What the query is doing: state, last batch, lag, watermark, last failure."""
    return _view(await job.status())


@control.put("/pause", status_code=HTTPStatus.ACCEPTED)
async def pause(job: Job, by: Controller) -> QueryView:
    """Finish the batch at work, then rest; Spark stays warm. The answer is the state right now."""
    return await _commanded(job, "pause", by)


@control.put("/resume", status_code=HTTPStatus.ACCEPTED)
async def resume(job: Job, by: Controller) -> QueryView:
    """Go on where the checkpoint stands."""
    return await _commanded(job, "resume", by)


@control.put("/stop", status_code=HTTPStatus.ACCEPTED)
async def stop(job: Job, by: Controller) -> QueryView:
    """Finish the batch at work, then end Spark. The job stays, and can be resumed."""
    return await _commanded(job, "stop", by)


@control.post("/restart", status_code=HTTPStatus.ACCEPTED)
async def restart(job: Job, by: Controller) -> QueryView:
    """Start the query anew on the same checkpoint."""
    return await _commanded(job, "restart", by)


@operations.get("/livez")
async def livez() -> Health:
    """The sidecar itself is alive; neither job nor broker are asked."""
    return Health(checks=[])


@operations.get(
    "/startupz", response_model=Health, responses=_problems(s503="The query has not started yet.")
)
async def startupz(request: Request, answer: JobAnswer) -> Health | Response:
    """The query has made progress, or rests on purpose."""
    return _health(request, health.startup(answer))


@operations.get(
    "/readyz", response_model=Health, responses=_problems(s503="`checks` says what is amiss.")
)
async def readyz(request: Request, answer: JobAnswer, settings: Settings) -> Health | Response:
    """The query runs and makes progress."""
    checks = health.readiness(answer, _now(), progress_age_max=settings.progress_age_max)
    return _health(request, checks)


@operations.get(
    "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}}
)
async def metrics(answer: JobAnswer, accept: Annotated[str, Header()] = "") -> Response:
    """For Prometheus. Without the job only streamjoin_job_up 0 and streamjoin_build_info."""
    status = None if isinstance(answer, JobUnavailableError) else answer
    content, content_type = exposition(status, _now(), accept)
    return Response(content, headers={"content-type": content_type})


async def _commanded(job: JobClient, verb: Verb, by: str) -> QueryView:
    return _view(await job.command(verb, by=by))


def _view(status: JobStatus) -> QueryView:
    return QueryView.of(status, _now())


def _health(request: Request, checks: list[Check]) -> Health | Response:
    if all(check.ok for check in checks):
        return Health(checks=checks)
    return problem(
        request,
        HTTPStatus.SERVICE_UNAVAILABLE,
        health.failing(checks),
        code="not_ready",
        title="The query is not ready",
        checks=checks,
    )


def _now() -> datetime:
    return datetime.now(UTC)
