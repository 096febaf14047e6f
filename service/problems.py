"""Every error response is application/problem+json (RFC 9457)."""

import math
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from job.api.view import View
from job.errors import BusyError, ConflictError, JobUnavailableError, RequestError
from service.health import Check

MEDIA_TYPE = "application/problem+json"


class FieldProblem(View):
    field: str
    """Dotted path in the request, e.g. `query.last`."""
    message: str
    """What is wrong."""


class Problem(View):
    type: str = "about:blank"
    """Stable name of the error for programs; about:blank if the status suffices."""
    title: str
    """Summary of the type."""
    status: int
    """HTTP status."""
    detail: str
    """What is wrong with this request, and the fix."""
    instance: str
    """Path of the request."""
    errors: list[FieldProblem] | None = None
    """Invalid fields of the request."""
    allowed: list[str] | None = None
    """Commands that the state of the query allows."""
    checks: list[Check] | None = None
    """All checks of a probe, also those that pass."""


def install(app: FastAPI) -> None:
    for error, answer in {
        HTTPException: http_error,
        RequestValidationError: invalid_request,
        ConflictError: conflict,
        RequestError: request_error,
        BusyError: busy,
        JobUnavailableError: job_unavailable,
        ClientDisconnect: client_disconnected,
        Exception: internal_error,
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
    """The response. `code` names a type of the project; None: a plain HTTP error."""
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
        detail = "unknown path: see /openapi.json for all calls"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette lists the methods of one route; a path may have several routes.
        headers["Allow"] = ", ".join(sorted(_methods(request))) or headers.get("Allow", "")
        detail = f"method {request.method} is not allowed; allowed: {headers['Allow']}"
    return problem(request, error.status_code, detail, headers=headers)


def _methods(request: Request) -> set[str]:
    """The allowed methods of the request's path, with HEAD for GET."""
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
        FieldProblem(field=".".join(map(str, each["loc"])), message=each["msg"])
        for each in error.errors()
    ]
    detail = "; ".join(f"{each.field}: {each.message}" for each in errors)
    return problem(
        request,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        detail,
        code="invalid_request",
        title="Invalid request",
        errors=errors,
    )


async def conflict(request: Request, error: Exception) -> Response:
    assert isinstance(error, ConflictError)
    return problem(
        request,
        HTTPStatus.CONFLICT,
        str(error),
        code=error.code,
        title="The state of the query forbids the command",
        allowed=error.allowed,
    )


async def request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return problem(
        request,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        str(error),
        code="invalid_request",
        title="Invalid request",
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


async def client_disconnected(request: Request, error: Exception) -> Response:
    """The client has disconnected. The response sets the status in the audit log."""
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


async def internal_error(request: Request, error: Exception) -> Response:
    del error  # uvicorn logs it; the message may contain what the client must not see
    return problem(
        request,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal error of the service: see its log",
    )


def with_problem_responses(schema: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document with Problem as the body of every error."""
    reference = {"schema": {"$ref": "#/components/schemas/Problem"}}
    for operations in schema["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if int(status) >= HTTPStatus.BAD_REQUEST:
                    response["content"] = {MEDIA_TYPE: reference}
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)  # FastAPI's own, unused
    return schema
