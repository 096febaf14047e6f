"""One log line per command and per denied call: client, address, call and result.

Query string and headers are never logged: they may contain a token.
"""

from http import HTTPStatus

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_READS = {"GET", "HEAD", "OPTIONS"}
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
        status = HTTPStatus.INTERNAL_SERVER_ERROR  # until a response starts

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = HTTPStatus(message["status"])
            await send(message)

        scope.setdefault("state", {})
        try:
            await self._app(scope, receive, send_and_note_status)
        finally:
            if scope["method"] not in _READS or status in _DENIED:
                _log_call(scope, status)


def _log_call(scope: Scope, status: HTTPStatus) -> None:
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
