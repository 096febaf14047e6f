"""One log line for each command, and for each call that was denied: who, from where, what, with
which result. Never what stood in the query string or the headers: they may hold a token."""

from http import HTTPStatus

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ONLY_LOOKS = {"GET", "HEAD", "OPTIONS"}
_DENIED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_PATH_CHARS_MAX = 200

_log = structlog.get_logger()


class Audit:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = HTTPStatus.INTERNAL_SERVER_ERROR  # as long as nothing was answered

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = HTTPStatus(message["status"])
            await send(message)

        scope.setdefault("state", {})
        try:
            await self._app(scope, receive, noting)
        finally:
            if scope["method"] not in _ONLY_LOOKS or status in _DENIED:
                _tell(scope, status)


def _tell(scope: Scope, status: HTTPStatus) -> None:
    client = scope.get("client")
    _log.info(
        "denied" if status in _DENIED else "command",
        verb=scope["path"].rpartition("/")[2][:_PATH_CHARS_MAX],
        method=scope["method"],
        path=scope["path"][:_PATH_CHARS_MAX],
        by=scope["state"].get("by", "unknown"),
        client=client[0] if client else "unknown",
        result=status.phrase,
        status=int(status),
    )
