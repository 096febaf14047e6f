"""Who may command the query. There are no tokens: only this machine may, and no web page on it."""

from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, HTTPException, Request

from service.settings import ServiceSettings, is_loopback


async def controller(request: Request) -> str:
    """The caller's name for the log of commands; 403 for who may not command."""
    settings: ServiceSettings = request.app.state.settings
    if not settings.is_local:
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"the sidecar listens on {settings.host}, where others reach it, and has no tokens: "
            "it commands the query only when STREAMJOIN_HOST is a loopback address",
        )
    # A web page can make a browser send requests to this machine, even under a name of its own.
    host = request.headers.get("host", "")
    if not is_loopback(_hostname(host)):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            "commands are taken under the name localhost or a loopback address only, "
            "not under the one in the Host header",
        )
    if request.headers.get("origin", f"http://{host}") != f"http://{host}":
        raise HTTPException(HTTPStatus.FORBIDDEN, "web pages of other sites may not command")
    return f"http:{request.client.host if request.client else 'unknown'}"


Controller = Annotated[str, Depends(controller)]


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
