"""A real service next to a real job, started as a user starts it."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.integration.jobs import START_SECONDS, STOP_SECONDS
from tests.polling import wait_until


@dataclass(frozen=True)
class Service:
    client: httpx.Client
    log: Path


@contextmanager
def running_service(socket: Path, **settings: str) -> Iterator[Service]:
    """Run the service of the job on `socket`; `settings` are its variables without STREAMJOIN_, in
    lower case."""
    environment = {
        **os.environ,
        "STREAMJOIN_SOCKET": str(socket),
        "STREAMJOIN_PORT": "0",
        **{f"STREAMJOIN_{name.upper()}": value for name, value in settings.items()},
    }
    with tempfile.TemporaryDirectory(prefix="sj-") as folder:
        log = Path(folder) / "service.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "service"], env=environment, stdout=stream, stderr=stream
            )

        def address() -> str:
            lines = [json.loads(line) for line in log.read_text().splitlines()]
            return next(
                (f"http://{line['host']}:{line['port']}" for line in lines if "port" in line), ""
            )

        try:
            url = wait_until(address, START_SECONDS, "the service has logged its address")
            with httpx.Client(base_url=url, timeout=STOP_SECONDS) as client:
                yield Service(client, log)
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)
