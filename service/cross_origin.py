"""Refuses what a web page of another site makes a browser send: every POST, PUT, PATCH, DELETE.

A browser sends simple requests across origins without asking first. The rule is that of Go's
http.CrossOriginProtection: `Sec-Fetch-Site`, which no page can set, decides where it is sent; else
`Origin` must be the host that was called. Programs send neither.
"""

from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.problems import problem

_CHANGES_NOTHING = {"GET", "HEAD", "OPTIONS", "TRACE"}
_REFUSED = (
    "web pages of other sites may not send requests here: call from the page at / or a program"
)


class CrossOrigin:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _is_foreign(request := Request(scope)):
            await problem(request, HTTPStatus.FORBIDDEN, _REFUSED)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _is_foreign(request: Request) -> bool:
    if request.method in _CHANGES_NOTHING:
        return False
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = request.headers.get("origin")
    return origin is not None and _host(origin) != request.headers.get("host", "").lower()


def _host(origin: str) -> str:
    """`localhost:8080` of `http://localhost:8080`; empty for `null` and what is no origin."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return ""
    return parts.netloc.lower() if parts.scheme in {"http", "https"} else ""
