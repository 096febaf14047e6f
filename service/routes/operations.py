"""Probes and the scrape."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response

from job.errors import JobUnavailableError
from service import health
from service.access import MaySeeDetails, authorize_metrics
from service.health import Check, Health
from service.metrics.exposition import exposition
from service.problems import problem
from service.routes.dependencies import DENIED, Settings, Status, now, problems

operations = APIRouter(tags=["operations"])


@operations.get("/livez")
async def livez() -> Health:
    """Whether the service is alive, independent of job and brokers."""
    return Health(checks=[])


@operations.get(
    "/startupz", response_model=Health, responses=problems(s503="The query has not started yet.")
)
async def startupz(request: Request, status: Status, detailed: MaySeeDetails) -> Health | Response:
    """Whether the query has made progress since the job started, or is paused or stopped."""
    return _health(request, health.startup(status), detailed=detailed)


@operations.get(
    "/readyz", response_model=Health, responses=problems(s503="`checks` names the failing checks.")
)
async def readyz(
    request: Request, status: Status, settings: Settings, detailed: MaySeeDetails
) -> Health | Response:
    """Whether the query is RUNNING with recent progress, reaches the brokers, and is within the
    configured limits of lag and watermark lag."""
    checks = health.readiness(status, now(), settings.limits)
    return _health(request, checks, detailed=detailed)


@operations.get(
    "/metrics",
    dependencies=[Depends(authorize_metrics)],
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **problems(**DENIED)},
)
async def metrics(status: Status, accept: Annotated[str, Header()] = "") -> Response:
    """Metrics for Prometheus. While the job is down, only streamjoin_job_up and
    streamjoin_build_info."""
    known = None if isinstance(status, JobUnavailableError) else status
    content, content_type = exposition(known, now(), accept)
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
