"""The sidecar as an ASGI application: its parts put together, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from service import page, problems, routes
from service.audit import Audit
from service.body_limit import BodyLimit
from service.cross_origin import CrossOrigin
from service.head import HeadAsGet
from service.job_client import JobClient
from service.problems import Problem
from service.settings import ServiceSettings
from service.tokens import TokenFile
from service.version import VERSION


def create_app(settings: ServiceSettings) -> FastAPI:
    """SetupError where the file of tokens cannot be used."""
    tokens = None if settings.tokens_file is None else TokenFile(settings.tokens_file)
    app = _Application(
        title="Streamjoin",
        summary="What the join is doing, and the commands it takes.",
        version=VERSION,
        lifespan=_lifespan,
        # FastAPI's pages load their scripts from elsewhere; /openapi.json stays.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={500: {"model": Problem, "description": "A defect of the sidecar."}},
    )
    app.state.settings = settings
    app.state.tokens = tokens
    # The last one is the outermost.
    app.add_middleware(HeadAsGet)
    app.add_middleware(BodyLimit)
    app.add_middleware(CrossOrigin)
    app.add_middleware(Audit)
    problems.install(app)
    routers = (routes.query, routes.control, routes.look_ups, routes.operations, page.router)
    for router in routers:
        app.include_router(router)
    app.state.routes = [route for router in routers for route in router.routes]
    return app


class _Application(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = problems.declared(super().openapi())
        return self.openapi_schema


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: ServiceSettings = app.state.settings
    app.state.job = JobClient(
        settings.socket, deadline=settings.job_answer, look_up_deadline=settings.look_up
    )
    try:
        yield
    finally:
        await app.state.job.close()
