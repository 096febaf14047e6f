"""Authorization: which clients can read, and which can send commands.

With tokens: clients with a bearer token of the scope (RFC 6750). Without: anyone who can reach the
port can read, and only local clients can send commands.
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
# Only for OpenAPI: `_authenticate` reads the header itself.
_BEARER = HTTPBearer(auto_error=False, description="A token of STREAMJOIN_TOKENS_FILE.")


async def authorize_read(request: Request, _: Annotated[object, Depends(_BEARER)] = None) -> None:
    """Raise HTTPException (401, 403 or 400) if the client is not allowed to read."""
    tokens = _tokens(request)
    if tokens is not None:
        _authenticate(request, tokens, Scope.READ)
    elif _settings(request).is_local:  # on another address, any name in Host may be correct
        _require_local_host_header(request)


async def authorize_metrics(request: Request) -> None:
    """As `authorize_read`, but without a token if STREAMJOIN_METRICS_OPEN is set."""
    if _tokens(request) is None or not _settings(request).metrics_open:
        await authorize_read(request)


async def authorize_page(request: Request) -> None:
    """Raise HTTPException (403) if the Host header does not name this machine. The page needs no
    token."""
    if _tokens(request) is None and _settings(request).is_local:
        _require_local_host_header(request)


async def may_send_commands(request: Request) -> bool:
    try:
        _authorize_command(request)
    except HTTPException:
        return False
    return True


async def may_see_details(request: Request) -> bool:
    """Whether the response of a probe may contain details; its status is public."""
    try:
        await authorize_read(request)
    except HTTPException:
        return False
    return True


class ControlRoute(APIRoute):
    """Refuses clients that are not allowed to send commands (401, 403 or 400) before it reads the
    body. As a dependency the check would be late: FastAPI parses the body before dependencies.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_authorized(request: Request) -> Response:
            _authorize_command(request)
            return await handle(request)

        return handle_authorized


def _authorize_command(request: Request) -> None:
    client = request.client.host if request.client else "unknown"
    tokens = _tokens(request)
    if tokens is not None:
        by = f"{_authenticate(request, tokens, Scope.CONTROL).name}@{client}"
    else:
        _require_local_client(request)
        by = f"http:{client}"
    request.state.by = by


async def controller_name(request: Request, _: Annotated[object, Depends(_BEARER)] = None) -> str:
    """Name and address of the client that `ControlRoute` authorized, for the log of commands."""
    by: str = request.state.by
    return by


Controller = Annotated[str, Depends(controller_name)]
MaySendCommands = Annotated[bool, Depends(may_send_commands)]
MaySeeDetails = Annotated[bool, Depends(may_see_details)]


def _authenticate(request: Request, tokens: TokenFile, scope: Scope) -> Token:
    presented = _bearer_token(request)
    if presented is None:
        raise HTTPException(
            HTTPStatus.UNAUTHORIZED,
            "a token is required: send the header `Authorization: Bearer <token>`, never a token "
            "in the URL",
            _challenge({}),
        )
    token = tokens.find(presented)
    if token is None:
        raise HTTPException(
            HTTPStatus.UNAUTHORIZED,
            "unknown token: add it to STREAMJOIN_TOKENS_FILE, or use a token of this file",
            _challenge({"error": "invalid_token"}),
        )
    request.state.by = token.name
    if not token.scope.includes(scope):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"the scope of this token is {token.scope}; {scope} is required",
            _challenge({"error": "insufficient_scope", "scope": scope.value}),
        )
    return token


def _bearer_token(request: Request) -> str | None:
    """The token in the Authorization header; None if there is none."""
    headers = request.headers.getlist("authorization")
    if len(headers) > 1:
        raise HTTPException(
            HTTPStatus.BAD_REQUEST,
            "the request has more than one Authorization header: send one",
            _challenge({"error": "invalid_request"}),
        )
    scheme, _, token = headers[0].partition(" ") if headers else ("", "", "")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _challenge(parameters: Mapping[str, str]) -> dict[str, str]:
    suffix = "".join(f', {name}="{value}"' for name, value in parameters.items())
    return {"WWW-Authenticate": f"{_REALM}{suffix}"}


def _require_local_client(request: Request) -> None:
    settings = _settings(request)
    if not settings.is_local:
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"commands are refused: the service listens on {settings.host}, which is not a "
            "loopback address, and has no tokens; set STREAMJOIN_TOKENS_FILE, or STREAMJOIN_HOST "
            "to a loopback address",
        )
    _require_local_host_header(request)


def _require_local_host_header(request: Request) -> None:
    """Refuse web pages of a host name that resolves to this machine (DNS rebinding)."""
    if not is_loopback(_hostname(request.headers.get("host", ""))):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            "the Host header does not name this machine: without tokens, call the service as "
            "localhost or by a loopback address",
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
