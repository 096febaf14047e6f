"""Dependencies of several routes: the job client, the settings, and the errors in OpenAPI."""

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from starlette.requests import ClientDisconnect

from job.errors import JobUnavailableError
from job.protocol.status import JobStatus
from service.job_client import JobClient
from service.problems import Problem
from service.settings import ServiceSettings

Result = TypeVar("Result")
StatusOrError = JobStatus | JobUnavailableError


async def job_client(request: Request) -> JobClient:
    client: JobClient = request.app.state.job
    return client


async def service_settings(request: Request) -> ServiceSettings:
    settings: ServiceSettings = request.app.state.settings
    return settings


async def job_status(job: Annotated[JobClient, Depends(job_client)]) -> StatusOrError:
    """The status, or the error if the job does not answer: for calls that respond in both cases."""
    try:
        return await job.status()
    except JobUnavailableError as error:
        return error


Job = Annotated[JobClient, Depends(job_client)]
Settings = Annotated[ServiceSettings, Depends(service_settings)]
Status = Annotated[StatusOrError, Depends(job_status)]


def problems(**descriptions: str) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: `problems(s503="The job does not answer.")`."""
    return {
        int(status.removeprefix("s")): {"model": Problem, "description": description}
        for status, description in descriptions.items()
    }


DENIED = {
    "s400": "The request has more than one Authorization header.",
    "s401": "Tokens are configured, and the request has none or an unknown one.",
    "s403": "The scope of the token is insufficient, or the client's address or host is refused.",
}


async def while_connected(request: Request, lookup: Coroutine[Any, Any, Result]) -> Result:
    """The result of `lookup`, which is cancelled if the client disconnects first."""
    task = asyncio.create_task(lookup)
    disconnect = asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait({task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    except asyncio.CancelledError:
        # After its grace period uvicorn cancels the requests that still wait.
        raise JobUnavailableError("the service is shutting down: repeat the request") from None
    finally:
        for pending in (task, disconnect):
            pending.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def now() -> datetime:
    return datetime.now(UTC)
