"""A real schema registry: Apicurio with Confluent's API, its data in memory."""

import json
import signal
import subprocess
import tarfile
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from deploy.local.ports import HOST, free_ports
from deploy.local.processes import last_lines, start_child, stop_child
from job.installation.jars import fetch, jar_folder
from job.installation.java import java_home
from tests.brokers import SHORT_LIVED
from tests.polling import wait_until

# Next to those of the other servers, and below the ephemeral ports of Linux.
PORTS = range(29_000, 30_000)
# The start takes 10 s on two idle cores.
START_SECONDS = 180.0
STOP_SECONDS = 20.0
ANSWER_SECONDS = 10.0
_API = "/apis/ccompat/v7"


class Apicurio:
    """`with Apicurio(folder) as registry:`; while it is frozen, it answers no client."""

    def __init__(self, folder: Path) -> None:
        fetch("apicurio")
        self._folder = folder
        [archive] = jar_folder("apicurio").glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        [self._port] = free_ports(PORTS, 1)
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        [program] = self._folder.glob("*-runner.jar")
        self._child = start_child(
            [
                java_home() / "bin" / "java",
                *("-Xmx256m", "-XX:+UseSerialGC", *SHORT_LIVED),
                f"-Dquarkus.http.host={HOST}",
                f"-Dquarkus.http.port={self._port}",
                *("-jar", program),
            ],
            log=self._log,
        )
        wait_until(self._answers, START_SECONDS, f"the registry answers; see {self._log}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.resume()
        stop_child(self._running, grace_seconds=STOP_SECONDS)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}{_API}"

    def register(self, subject: str, schema: dict[str, Any] | str, kind: str = "AVRO") -> int:
        """The id of a new version of `subject`."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        request = urllib.request.Request(
            f"http://{HOST}:{self._port}{_API}/subjects/{subject}/versions",
            data=json.dumps({"schema": text, "schemaType": kind}).encode(),
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310  # http, see above
            return int(json.load(answer)["id"])

    def require_compatibility(self, subject: str) -> None:
        """New versions of `subject` must read the values of the one before."""
        request = urllib.request.Request(
            f"http://{HOST}:{self._port}{_API}/config/{subject}",
            data=json.dumps({"compatibility": "BACKWARD"}).encode(),
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
            method="PUT",
        )
        urllib.request.urlopen(request, timeout=ANSWER_SECONDS).close()  # noqa: S310  # http, see above

    def schema(self, number: int) -> str:
        """The text of the schema with this id."""
        address = f"http://{HOST}:{self._port}{_API}/schemas/ids/{number}"
        with urllib.request.urlopen(address, timeout=ANSWER_SECONDS) as answer:
            return str(json.load(answer)["schema"])

    def freeze(self) -> None:
        self._running.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running.send_signal(signal.SIGCONT)

    @property
    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._child is not None
        return self._child

    def _answers(self) -> bool:
        assert self._running.poll() is None, last_lines(self._log)
        with suppress(OSError):
            urllib.request.urlopen(
                f"http://{HOST}:{self._port}{_API}/subjects", timeout=ANSWER_SECONDS
            ).close()
            return True
        return False

    @property
    def _log(self) -> Path:
        return self._folder / "apicurio.log"
