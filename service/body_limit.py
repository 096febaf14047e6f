"""Refuses large request bodies and bodies of ambiguous length before anything reads them."""

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.problems import problem

# The largest request is one spec; a spec of 100 columns takes 10 kB.
BODY_BYTES_MAX = 64 * 1024
# Proxy and server may disagree about which of them delimits the request (RFC 9112, 6.1).
_AMBIGUOUS = "the request has both Content-Length and Transfer-Encoding: send one of them"
_TOO_LARGE = f"the body is too large: at most {BODY_BYTES_MAX} bytes"


class BodyLimit:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif {"content-length", "transfer-encoding"} <= set(Request(scope).headers.keys()):
            # The rest of the connection cannot be parsed reliably.
            headers = {"connection": "close"}
            refusal = problem(Request(scope), HTTPStatus.BAD_REQUEST, _AMBIGUOUS, headers=headers)
            await refusal(scope, receive, send)
        elif _declared_bytes(Request(scope)) > BODY_BYTES_MAX:
            refusal = problem(Request(scope), HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LARGE)
            await refusal(scope, receive, send)
        else:
            await self._app(scope, _limited(receive), send)


def _declared_bytes(request: Request) -> int:
    """Content-Length. 0: no such header; `_limited` counts the bytes as they arrive."""
    header = request.headers.get("content-length", "")
    return int(header) if header.isdecimal() else 0


def _limited(receive: Receive) -> Receive:
    received_bytes = 0

    async def limited() -> Message:
        nonlocal received_bytes
        message = await receive()
        received_bytes += len(message.get("body", b""))
        if received_bytes > BODY_BYTES_MAX:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LARGE)
        return message

    return limited
