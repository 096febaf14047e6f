"""Lookups of state and the validation of a spec: slow calls, which wait in the job for their turn.

The job cancels a lookup once the caller has closed the connection.
"""

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from pydantic import BaseModel, ConfigDict, ValidationError

from job.errors import RequestError
from job.join_spec.sides import Side
from job.protocol.control import Request as Question
from job.protocol.control import StateRequest
from job.protocol.reports import StateCount
from job.protocol.results import KeyExplanation, KeyRows, ValidationResult
from service.access import reader
from service.routes.dependencies import REFUSED, Job, problems, while_connected

_ROWS_MAX = 100
_YAML_TYPES = ("text/yaml", "application/yaml", "text/plain")

look_ups = APIRouter(
    prefix="/v1",
    tags=["look-ups"],
    dependencies=[Depends(reader)],
    responses=problems(**REFUSED, s503="The job does not answer, or not in time."),
)
_OF_STATE = problems(
    s409="There is no state to look at: the query is neither RUNNING nor PAUSED, or has not begun.",
    s429="Too many lookups of state already wait. Retry-After: when to try again, in seconds.",
)

KeyPart = Annotated[str, Query(max_length=1024)]
Key = Annotated[
    list[KeyPart],
    Query(
        min_length=1,
        max_length=16,
        description="The parts of the key as text, in the order of the spec: `?key=a&key=7`.",
    ),
]
Limit = Annotated[int, Query(ge=1, le=_ROWS_MAX, description="How many rows of a side at most.")]


class SpecDocument(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: str
    """The YAML."""


@look_ups.get("/query/state", responses=_OF_STATE)
async def state(request: Request, job: Job) -> StateCount:
    """Count the rows the join holds, per side and partition, as of the last batch."""
    question = Question(call="state_count")
    return await while_connected(request, job.ask(question, StateCount))


@look_ups.get("/query/state/{side}", responses=_OF_STATE)
async def state_rows(
    request: Request, job: Job, side: Side, key: Key, limit: Limit = 20
) -> KeyRows:
    """The rows of one key that the join holds, as of the last batch."""
    question = Question(call="state", state=StateRequest(side=side, key=key, limit=limit))
    return await while_connected(request, job.ask(question, KeyRows))


@look_ups.get("/query/explain", responses=_OF_STATE)
async def explain(request: Request, job: Job, key: Key, limit: Limit = 20) -> KeyExplanation:
    """Why a row has not come out: in words, with the rows of its key on both sides."""
    question = Question(call="explain", state=StateRequest(key=key, limit=limit))
    return await while_connected(request, job.ask(question, KeyExplanation))


@look_ups.post(
    "/validate",
    responses=problems(
        s413="The body is too large.",
        s415="The body is neither YAML, plain text nor JSON.",
        s429="Another spec is being validated; Retry-After gives the seconds to wait.",
    ),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                **{kind: {"schema": {}} for kind in _YAML_TYPES},  # whatever it says is judged
                "application/json": {"schema": SpecDocument.model_json_schema()},
            },
        },
        "responses": {
            str(int(HTTPStatus.UNPROCESSABLE_ENTITY)): {
                "description": "The body is not text, or not the JSON it should be."
            }
        },
    },
)
async def validate(request: Request, job: Job) -> ValidationResult:
    """Validate a spec: all of its problems, or its plan and what the checkpoint does not accept.

    `${VAR}` is not filled in. Answered with 200 whatever is wrong with the spec. One at a time: a
    second call waits for its turn.
    """
    question = Question(call="validate", spec=await _spec(request))
    return await while_connected(request, job.ask(question, ValidationResult))


async def _spec(request: Request) -> str:
    """The YAML in the body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in {*_YAML_TYPES, "application/json"}:
        raise HTTPException(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"send the spec as {', '.join(_YAML_TYPES)}, "
            'or as application/json: {"spec": "<the YAML>"}; '
            "e.g. curl -H 'Content-Type: text/yaml' --data-binary @join.yaml",
        )
    body = await request.body()
    try:
        if kind == "application/json":
            return SpecDocument.model_validate_json(body).spec
        return body.decode()
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not text in UTF-8: byte {error.start}") from error
    except ValidationError as error:
        raise RequestError(f"the body is not {_json_form()}: {_first(error)}") from error


def _json_form() -> str:
    return '{"spec": "<the YAML>"}'


def _first(error: ValidationError) -> Any:
    return error.errors()[0]["msg"]
