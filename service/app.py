"""The ASGI application: routes, middleware, error handlers and lifespan."""

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
    """Raises SetupError if the token file cannot be used."""
    tokens = None if settings.tokens_file is None else TokenFile(settings.tokens_file)
    app = _Application(
        title="Streamjoin",
        summary="State and control of a join of two Kafka topics.",
        version=VERSION,
        lifespan=_lifespan,
        # FastAPI's own pages load scripts from a CDN; /openapi.json remains.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={500: {"model": Problem, "description": "A defect of the service."}},
    )
    app.state.settings = settings
    app.state.tokens = tokens
    # The last one is the outermost.
    app.add_middleware(HeadAsGet)
    app.add_middleware(BodyLimit)
    app.add_middleware(CrossOrigin)
    app.add_middleware(Audit)
    problems.install(app)
    routers = [routes.query, routes.control, routes.state, routes.explanation, routes.validation]
    routers += [routes.operations, page.router]
    for router in routers:
        app.include_router(router)
    app.state.routes = [route for router in routers for route in router.routes]
    return app


class _Application(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = problems.with_problem_responses(super().openapi())
        return self.openapi_schema


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: ServiceSettings = app.state.settings
    app.state.job = JobClient(
        settings.socket, deadline=settings.job_answer, slow_deadline=settings.lookup
    )
    try:
        yield
    finally:
        await app.state.job.close()
