"""Calls to the service in this process: no port, but the real application and a real socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from job.protocol.status import QueryState
from service.app import create_app
from service.settings import ServiceSettings

URL = "http://127.0.0.1:8080"
# Deadline for a job that answers; generous, because other tests load the machine.
PATIENCE_SECONDS = 20.0
DEADLINE = timedelta(seconds=0.3)
# What a loaded machine may add to the deadline. Without the deadline the calls never end.
SLACK_SECONDS = 5.0
AT_ONCE = 100
PROBLEM = "application/problem+json"

COMMANDS = {
    "pause": ("PUT", QueryState.PAUSED),
    "resume": ("PUT", QueryState.RUNNING),
    "stop": ("PUT", QueryState.STOPPED),
    "restart": ("POST", QueryState.RESTARTING),
}

Install = Callable[[FastAPI], None]


def settings(socket: Path, **fields: Any) -> ServiceSettings:
    return ServiceSettings(**{"socket": socket, "job_answer_seconds": PATIENCE_SECONDS, **fields})


def call(
    method: str, path: str, made: ServiceSettings, *, install: Install | None = None, **request: Any
) -> httpx.Response:
    """One request to a new service; `install` can add routes to it."""

    async def request_once(client: httpx.AsyncClient) -> httpx.Response:
        return await client.request(method, path, **request)

    return with_client(request_once, made, install=install)


def with_client(
    talk: Callable[[httpx.AsyncClient], Awaitable[Any]],
    made: ServiceSettings,
    *,
    install: Install | None = None,
) -> Any:
    async def run() -> Any:
        async with running_service(made, install) as client:
            return await talk(client)

    return asyncio.run(run())


@cache
def _app() -> FastAPI:
    """An application for all calls: FastAPI builds the routes of an application at its first
    request, which takes longer than the request."""
    return create_app(ServiceSettings())


@asynccontextmanager
async def running_service(
    made: ServiceSettings, install: Install | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(made)
    if install is not None:
        install(app)
    else:
        state, app = app.state, _app()
        app.state = state
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=URL) as client,
    ):
        yield client


def problem(answer: httpx.Response) -> dict[str, Any]:
    body = answer.json()
    assert (PROBLEM, answer.status_code) == (answer.headers["content-type"], body["status"])
    return body
