"""The status page at `/`: one file, which calls the public HTTP API.

The page itself needs no token: it contains nothing about the query.
"""

import base64
import hashlib
import re
from pathlib import Path

from fastapi import APIRouter, Depends, Response

from service.access import authorize_page

_HTML = Path(__file__).with_name("page.html").read_text(encoding="utf-8")

router = APIRouter(include_in_schema=False)


@router.get("/", dependencies=[Depends(authorize_page)])
async def page() -> Response:
    return Response(_HTML, media_type="text/html", headers=_HEADERS)


def _hash(tag: str) -> str:
    """CSP source expression that allows exactly the page's own <script> or <style>."""
    [content] = re.findall(f"<{tag}>(.*?)</{tag}>", _HTML, re.DOTALL)
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


_POLICY = {
    "default-src": "'none'",
    "script-src": _hash("script"),
    "style-src": _hash("style"),
    "img-src": "data:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    # Prevents clickjacking.
    "frame-ancestors": "'none'",
    # Text never becomes markup, even if the script has a defect.
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
_HEADERS = {
    "content-security-policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "cache-control": "no-cache",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
