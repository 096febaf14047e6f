"""What machines ask: probes and the scrape."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response

from job.errors import JobUnavailableError
from service import health
from service.access import MaySeeDetails, metrics_reader
from service.health import Check, Health
from service.metrics import exposition
from service.problems import problem
from service.routes.dependencies import REFUSED, JobAnswer, Settings, now, problems

operations = APIRouter(tags=["operations"])


@operations.get("/livez")
async def livez() -> Health:
    """The sidecar itself is alive; neither job nor broker are asked."""
    return Health(checks=[])


@operations.get(
    "/startupz", response_model=Health, responses=problems(s503="The query has not started yet.")
)
async def startupz(
    request: Request, answer: JobAnswer, detailed: MaySeeDetails
) -> Health | Response:
    """The query has made progress, or rests on purpose."""
    return _health(request, health.startup(answer), detailed=detailed)


@operations.get(
    "/readyz", response_model=Health, responses=problems(s503="`checks` says what is amiss.")
)
async def readyz(
    request: Request, answer: JobAnswer, settings: Settings, detailed: MaySeeDetails
) -> Health | Response:
    """The query runs, makes progress, reaches the brokers and is within the limits that are set."""
    checks = health.readiness(answer, now(), settings.limits)
    return _health(request, checks, detailed=detailed)


@operations.get(
    "/metrics",
    dependencies=[Depends(metrics_reader)],
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **problems(**REFUSED)},
)
async def metrics(answer: JobAnswer, accept: Annotated[str, Header()] = "") -> Response:
    """For Prometheus. Without the job only streamjoin_job_up 0 and streamjoin_build_info."""
    status = None if isinstance(answer, JobUnavailableError) else answer
    content, content_type = exposition(status, now(), accept)
    return Response(content, headers={"content-type": content_type})


def _health(request: Request, checks: list[Check], *, detailed: bool) -> Health | Response:
    if not detailed:
        checks = health.without_details(checks)
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
