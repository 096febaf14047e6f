"""Errors as RFC 9457 says: application/problem+json, whatever went wrong and wherever."""

import math
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from job.errors import BusyError, ConflictError, JobUnavailableError, RequestError
from service.health import Check

MEDIA_TYPE = "application/problem+json"


class FieldProblem(BaseModel):
    model_config = ConfigDict(frozen=True)

    field: str
    """Where it stood: dotted, e.g. `query.last`."""
    message: str


class Problem(BaseModel):
    model_config = ConfigDict(frozen=True)

    type: str = "about:blank"
    """A stable name for programs; about:blank where the status says it all."""
    title: str
    status: int
    detail: str
    """What is wrong here and now, and what to do."""
    instance: str
    """The path that was asked for."""
    errors: list[FieldProblem] | None = None
    allowed: list[str] | None = None
    """The verbs that the query's state allows."""
    checks: list[Check] | None = None
    """Those of a probe, the passed ones too."""


def install(app: FastAPI) -> None:
    for error, answer in {
        HTTPException: http_error,
        RequestValidationError: invalid_request,
        ConflictError: conflict,
        RequestError: senseless_request,
        BusyError: busy,
        JobUnavailableError: job_unavailable,
        ClientDisconnect: departed,
        Exception: unforeseen,
    }.items():
        app.add_exception_handler(error, answer)


def problem(
    request: Request,
    status: int,
    detail: str,
    *,
    code: str | None = None,
    title: str | None = None,
    headers: dict[str, str] | None = None,
    **extensions: Any,
) -> Response:
    """The response; without a code it is a plain HTTP error."""
    body = Problem(
        type="about:blank" if code is None else f"urn:streamjoin:problem:{code}",
        title=title or HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        instance=quote(request.scope["path"]),
        **extensions,
    )
    content = body.model_dump_json(exclude_none=True)
    return Response(content, status, headers, MEDIA_TYPE)


async def http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    detail = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = "there is nothing at this path; the calls are listed at /openapi.json"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette names those of one route; a path may have several.
        headers["Allow"] = ", ".join(sorted(_methods(request))) or headers.get("Allow", "")
        detail = f"{request.method} is not possible here; possible: {headers['Allow']}"
    return problem(request, error.status_code, detail, headers=headers)


def _methods(request: Request) -> set[str]:
    """What is possible at the path that was asked for; HEAD wherever GET is."""
    methods = {
        method
        for route in request.app.state.routes
        if route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods
    }
    return methods | {"HEAD"} if "GET" in methods else methods


async def invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [
        FieldProblem(field=".".join(map(str, found["loc"])), message=found["msg"])
        for found in error.errors()
    ]
    detail = "; ".join(f"{found.field}: {found.message}" for found in errors)
    return problem(
        request,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        detail,
        code="invalid_request",
        title="The request is not as it should be",
        errors=errors,
    )


async def conflict(request: Request, error: Exception) -> Response:
    assert isinstance(error, ConflictError)
    return problem(
        request,
        HTTPStatus.CONFLICT,
        str(error),
        code=error.code,
        title="The query's state forbids this",
        allowed=error.allowed,
    )


async def senseless_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return problem(
        request,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        str(error),
        code="invalid_request",
        title="The request is not as it should be",
    )


async def busy(request: Request, error: Exception) -> Response:
    assert isinstance(error, BusyError)
    return problem(
        request,
        HTTPStatus.TOO_MANY_REQUESTS,
        str(error),
        code=error.code,
        title="The job is busy",
        headers={"retry-after": str(math.ceil(error.retry_after_seconds))},
    )


async def departed(request: Request, error: Exception) -> Response:
    """Nobody is there to read it, except the audit log."""
    del request, error
    return Response(status_code=HTTPStatus.REQUEST_TIMEOUT)


async def job_unavailable(request: Request, error: Exception) -> Response:
    assert isinstance(error, JobUnavailableError)
    return problem(
        request,
        HTTPStatus.SERVICE_UNAVAILABLE,
        str(error),
        code=error.code,
        title="The job does not answer",
    )


async def unforeseen(request: Request, error: Exception) -> Response:
    del error  # the server logs it; what it says may be nothing for the one who asked
    return problem(
        request,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "this is a defect of the sidecar; its log has the details",
    )


def declared(schema: dict[str, Any]) -> dict[str, Any]:
    """An OpenAPI document that says of every error that it is a Problem."""
    reference = {"schema": {"$ref": "#/components/schemas/Problem"}}
    for operations in schema["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if int(status) >= HTTPStatus.BAD_REQUEST:
                    response["content"] = {MEDIA_TYPE: reference}
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)  # FastAPI's own, not used any more
    return schema
