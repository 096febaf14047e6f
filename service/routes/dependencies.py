"""What the routes are made of: the job to ask, the settings, the problems they declare."""

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

Found = TypeVar("Found")
Answer = JobStatus | JobUnavailableError


async def job_client(request: Request) -> JobClient:
    client: JobClient = request.app.state.job
    return client


async def service_settings(request: Request) -> ServiceSettings:
    settings: ServiceSettings = request.app.state.settings
    return settings


async def job_answer(job: Annotated[JobClient, Depends(job_client)]) -> Answer:
    """For calls that have something to say without the job, too."""
    try:
        return await job.status()
    except JobUnavailableError as error:
        return error


Job = Annotated[JobClient, Depends(job_client)]
Settings = Annotated[ServiceSettings, Depends(service_settings)]
JobAnswer = Annotated[Answer, Depends(job_answer)]


def problems(**reasons: str) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: `problems(s503="the job does not answer")`."""
    return {
        int(status.removeprefix("s")): {"model": Problem, "description": reason}
        for status, reason in reasons.items()
    }


REFUSED = {
    "s400": "The header Authorization was sent more than once.",
    "s401": "Where there are tokens: none was sent, or one that is not known.",
    "s403": "The token's scope does not do, or calls are not taken from here.",
}


async def while_connected(request: Request, looking: Coroutine[Any, Any, Found]) -> Found:
    """What `looking` finds; it is cancelled when whoever has asked goes away."""
    search = asyncio.create_task(looking)
    departure = asyncio.create_task(_departed(request))
    try:
        await asyncio.wait({search, departure}, return_when=asyncio.FIRST_COMPLETED)
        if not search.done():
            raise ClientDisconnect
        return search.result()
    except asyncio.CancelledError:
        # The server cancels what still waits a while after it was told to end.
        raise JobUnavailableError("the service ends: ask again once it is back") from None
    finally:
        for task in (search, departure):
            task.cancel()


async def _departed(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def now() -> datetime:
    return datetime.now(UTC)
