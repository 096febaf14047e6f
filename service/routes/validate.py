"""Validation of a spec, which runs in a process of the job, one at a time."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends, HTTPException, Request
from pydantic import ValidationError

from job.errors import RequestError
from job.protocol import calls
from job.protocol.results import ValidationResult
from service.access import authorize_read
from service.routes.dependencies import DENIED, Job, problems, while_connected
from service.schemas.validation import SpecDocument

_YAML_TYPES = ("text/yaml", "application/yaml", "text/plain")
_JSON_FORM = '{"spec": "<the YAML>"}'


validation = APIRouter(
    prefix="/v1",
    tags=["validation"],
    dependencies=[Depends(authorize_read)],
    responses=problems(
        **DENIED,
        s413="The body is too large.",
        s415="The body is neither YAML, plain text nor JSON.",
        s429="Other specs wait for validation; Retry-After gives the seconds until the next try.",
        s503="The job does not answer, or not in time.",
    ),
)


# For OpenAPI: the body of a call that reads `spec_in_body`.
SPEC_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            **{kind: {"schema": {}} for kind in _YAML_TYPES},  # any text is validated
            "application/json": {"schema": SpecDocument.model_json_schema()},
        },
    },
    "responses": {
        str(int(HTTPStatus.UNPROCESSABLE_ENTITY)): {
            "description": f"The body is not UTF-8 text, or its JSON is not {_JSON_FORM}."
        }
    },
}


@validation.post("/validate", openapi_extra=SPEC_BODY)
async def validate(request: Request, job: Job) -> ValidationResult:
    """Validate the spec in the body: its problems, or its plan and what this checkpoint rejects.

    The status is 200 for an invalid spec too. `${VAR}` is not replaced. Validations run one at a
    time, for at most 20 s each, in a separate process with limits of CPU time and memory. It starts
    with the first call, and ends after ten minutes without a call.
    """
    validate_spec = calls.Validate(spec=await spec_in_body(request))
    return await while_connected(request, job.read(validate_spec, ValidationResult))


async def spec_in_body(request: Request) -> str:
    """The spec in the body, which is YAML or the JSON of `SpecDocument`. Raises HTTPException or
    RequestError if it is neither."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in {*_YAML_TYPES, "application/json"}:
        raise HTTPException(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"send the spec as {', '.join(_YAML_TYPES)}, or as application/json: {_JSON_FORM}; "
            "e.g. curl -H 'Content-Type: text/yaml' --data-binary @join.yaml",
        )
    body = await request.body()
    try:
        if kind == "application/json":
            return SpecDocument.model_validate_json(body).spec
        return body.decode()
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8 text: byte {error.start}") from error
    except ValidationError as error:
        (problem, *_) = error.errors()
        field = ".".join(str(part) for part in problem["loc"])
        raise RequestError(f"the body is not {_JSON_FORM}: {field} {problem['msg']}") from error
