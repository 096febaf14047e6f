"""Refuses POST, PUT, PATCH and DELETE from web pages of other sites.

Browsers send simple requests across origins without a preflight. The rule is that of Go's
http.CrossOriginProtection: `Sec-Fetch-Site` decides, which pages cannot set; without it, `Origin`
must equal `Host`. Programs send neither header.
"""

from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.problems import problem

_SAFE_METHODS = {"GET", "HEAD", "OPTIONS", "TRACE"}
_REFUSED = "cross-origin request refused: send it from the status page at / or from a program"


class CrossOrigin:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _is_cross_origin(request := Request(scope)):
            await problem(request, HTTPStatus.FORBIDDEN, _REFUSED)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _is_cross_origin(request: Request) -> bool:
    if request.method in _SAFE_METHODS:
        return False
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = request.headers.get("origin")
    return origin is not None and _host(origin) != request.headers.get("host", "").lower()


def _host(origin: str) -> str:
    """`localhost:8080` of `http://localhost:8080`; empty for `null` and invalid origins."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return ""
    return parts.netloc.lower() if parts.scheme in {"http", "https"} else ""
