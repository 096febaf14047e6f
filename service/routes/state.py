"""Lookups of join state. They are slow: in the job they run one at a time.

The job cancels a lookup once the client disconnects.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import AwareDatetime, BeforeValidator

from job.protocol import calls
from job.protocol.reports import StateCount
from job.protocol.results import KeyExplanation, KeyRows
from job.spec.sides import Side
from service.access import Controller, ControlRoute, authorize_read
from service.routes.dependencies import DENIED, Job, problems, while_connected

_ROWS_MAX = 100

_RESPONSES = problems(
    **DENIED,
    s409="There is no state to read: the query is neither RUNNING nor PAUSED, or no batch has "
    "ended yet.",
    s429="Too many lookups wait; Retry-After gives the seconds until the next attempt.",
    s503="The job does not answer, or not in time.",
)

state = APIRouter(
    prefix="/v1/query",
    tags=["state"],
    dependencies=[Depends(authorize_read)],
    responses=_RESPONSES,
)
# An explanation reads topics, so it needs the scope `control`.
explanation = APIRouter(
    prefix="/v1/query", tags=["state"], route_class=ControlRoute, responses=_RESPONSES
)

KeyPart = Annotated[str, Query(max_length=1024)]
Key = Annotated[
    list[KeyPart],
    Query(
        min_length=1,
        max_length=16,
        description="Parts of the key as text, in the order of the spec: `?key=a&key=7`.",
    ),
]


def _is_time(text: str | None) -> str | None:
    # pydantic also reads numbers as seconds since 1970.
    if text is not None and "T" not in text:
        raise ValueError("must be ISO-8601 with an offset, e.g. 2026-01-31T12:00:00Z")
    return text


Since = Annotated[
    AwareDatetime | None,
    BeforeValidator(_is_time),
    Query(
        description="Time from which the topics are read, with an offset from UTC. Default: long "
        "enough for the rows in state: window, watermark delay and 15 minutes.",
    ),
]
Limit = Annotated[int, Query(ge=1, le=_ROWS_MAX, description="Maximum rows per side.")]


@state.get("/state")
async def state_count(request: Request, job: Job) -> StateCount:
    """Rows in join state, counted by side and state partition."""
    count = job.read(calls.StateCount(), StateCount)
    return await while_connected(request, count)


@state.get("/state/{side}")
async def state_rows(
    request: Request, job: Job, side: Side, key: Key, limit: Limit = 20
) -> KeyRows:
    """Rows of one key in join state, as of the last batch."""
    lookup = calls.State(side=side, key=key, limit=limit)
    return await while_connected(request, job.read(lookup, KeyRows))


@explanation.get("/explain")
async def explain(
    request: Request, job: Job, _: Controller, key: Key, limit: Limit = 20, since: Since = None
) -> KeyExplanation:
    """Why a row was not emitted: a sentence for each record of its key on both sides. The job reads
    the topics, at most 64 MiB in 10 s."""
    lookup = calls.Explain(key=key, limit=limit, since=since)
    return await while_connected(request, job.read(lookup, KeyExplanation))
