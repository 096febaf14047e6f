"""Who may look at the query and who may command it.

With tokens: whoever shows one of the scope (RFC 6750). Without: whoever can reach the sidecar may
look, and only this machine may command, no web page on it.
"""

from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, HTTPException, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from service.settings import ServiceSettings, is_loopback
from service.tokens import Scope, Token, TokenFile

_REALM = 'Bearer realm="streamjoin"'
# For OpenAPI; what it finds is judged below.
_BEARER = HTTPBearer(auto_error=False, description="A token of STREAMJOIN_TOKENS_FILE.")


async def reader(request: Request, _: Annotated[object, Depends(_BEARER)] = None) -> None:
    """401, 403 or 400 for who may not look."""
    tokens = _tokens(request)
    if tokens is not None:
        _holder(request, tokens, Scope.READ)
    elif _settings(request).is_local:
        _refuse_foreign_names(request)


async def metrics_reader(request: Request) -> None:
    """As `reader`; with STREAMJOIN_METRICS_OPEN no token is needed.

    Where others can reach the sidecar, Prometheus scrapes it under any name or address.
    """
    if _tokens(request) is None or not _settings(request).metrics_open:
        await reader(request)


async def page_reader(request: Request) -> None:
    """403 where the name in the Host header is not this machine's; the page needs no token."""
    if _tokens(request) is None and _settings(request).is_local:
        _refuse_foreign_names(request)


async def may_see_details(request: Request) -> bool:
    """Whether a probe may say why; its status is for everybody."""
    try:
        await reader(request)
    except HTTPException:
        return False
    return True


class ControlRoute(APIRoute):
    """401, 403 or 400 for who may not command, before anything of the body is read.

    FastAPI parses a body before it asks the first dependency.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_for_controller(request: Request) -> Response:
            _admit_controller(request)
            return await handle(request)

        return handle_for_controller


def _admit_controller(request: Request) -> None:
    client = request.client.host if request.client else "unknown"
    tokens = _tokens(request)
    if tokens is not None:
        by = f"{_holder(request, tokens, Scope.CONTROL).name}@{client}"
    else:
        _refuse_all_but_this_machine(request)
        by = f"http:{client}"
    request.state.by = by


async def controller(request: Request, _: Annotated[object, Depends(_BEARER)] = None) -> str:
    """The name of who was let in by `ControlRoute`, for the log of commands."""
    by: str = request.state.by
    return by


Controller = Annotated[str, Depends(controller)]
MaySeeDetails = Annotated[bool, Depends(may_see_details)]


def _holder(request: Request, tokens: TokenFile, scope: Scope) -> Token:
    presented = _presented(request)
    if presented is None:
        raise HTTPException(
            HTTPStatus.UNAUTHORIZED,
            "a token is needed: send the header `Authorization: Bearer <token>`, never a token in "
            "the URL",
            _challenge({}),
        )
    token = tokens.holder(presented)
    if token is None:
        raise HTTPException(
            HTTPStatus.UNAUTHORIZED,
            "this token is not known here, or not any more",
            _challenge({"error": "invalid_token"}),
        )
    request.state.by = token.name
    if not token.scope.includes(scope):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"this token's scope is {token.scope}, and {scope} is needed",
            _challenge({"error": "insufficient_scope", "scope": scope.value}),
        )
    return token


def _presented(request: Request) -> str | None:
    """The token that was sent; None where none was."""
    written = request.headers.getlist("authorization")
    if len(written) > 1:
        raise HTTPException(
            HTTPStatus.BAD_REQUEST,
            "the header Authorization was sent more than once",
            _challenge({"error": "invalid_request"}),
        )
    scheme, _, token = written[0].partition(" ") if written else ("", "", "")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _challenge(parameters: Mapping[str, str]) -> dict[str, str]:
    named = "".join(f', {name}="{value}"' for name, value in parameters.items())
    return {"WWW-Authenticate": f"{_REALM}{named}"}


def _refuse_all_but_this_machine(request: Request) -> None:
    settings = _settings(request)
    if not settings.is_local:
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"the sidecar listens on {settings.host}, where others reach it, and has no tokens: "
            "it commands the query only when STREAMJOIN_HOST is a loopback address, "
            "or STREAMJOIN_TOKENS_FILE names who may",
        )
    _refuse_foreign_names(request)


def _refuse_foreign_names(request: Request) -> None:
    """403 for a web page whose own name resolves to this machine (DNS rebinding)."""
    if not is_loopback(_hostname(request.headers.get("host", ""))):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            "without tokens, calls are taken under the name localhost or a loopback address only, "
            "not under the one in the Host header",
        )


def _settings(request: Request) -> ServiceSettings:
    settings: ServiceSettings = request.app.state.settings
    return settings


def _tokens(request: Request) -> TokenFile | None:
    tokens: TokenFile | None = request.app.state.tokens
    return tokens


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
