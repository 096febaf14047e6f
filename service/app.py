"""The sidecar as an ASGI application: its parts put together, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from service import problems, routes
from service.body_limit import BodyLimit
from service.job_client import JobClient
from service.problems import Problem
from service.settings import ServiceSettings
from service.version import VERSION


def create_app(settings: ServiceSettings) -> FastAPI:
    app = _Application(
        title="Streamjoin",
        summary="What the join is doing, and the commands it takes.",
        version=VERSION,
        lifespan=_lifespan,
        redoc_url=None,
        redirect_slashes=False,
        responses={500: {"model": Problem, "description": "A defect of the sidecar."}},
    )
    app.state.settings = settings
    app.add_middleware(BodyLimit)
    problems.install(app)
    for router in (routes.query, routes.control, routes.operations):
        app.include_router(router)
    return app


class _Application(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = problems.declared(super().openapi())
        return self.openapi_schema


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: ServiceSettings = app.state.settings
    app.state.job = JobClient(settings.socket, deadline=settings.job_answer)
    try:
        yield
    finally:
        await app.state.job.close()
