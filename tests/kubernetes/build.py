"""Builds the API server: once from its Go module, and again when that changes."""

import hashlib
from pathlib import Path

from tests.docker.kubernetes import CACHE, go

MODULE = Path(__file__).parent / "server"
# 14 minutes of CPU, for 2,100 packages; at the lowest priority on busy cores it took 44.
BUILD_SECONDS = 3600


def build_api_server() -> Path:
    """The program, built if it is missing."""
    sources = b"".join(file.read_bytes() for file in sorted(MODULE.iterdir()))
    server = CACHE / "bin" / hashlib.sha256(sources).hexdigest()[:16] / "kube-apiserver"
    if not server.exists():
        server.parent.mkdir(parents=True, exist_ok=True)
        partial = server.with_suffix(".partial")
        options = ["-trimpath", "-ldflags=-s -w", "-o", str(partial)]
        pure = {"CGO_ENABLED": "0"}
        go("build", *options, environment=pure, within=MODULE, seconds=BUILD_SECONDS)
        partial.rename(server)
    return server
