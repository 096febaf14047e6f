"""Client of fork_server.py: starts jobs and other `streamjoin` commands without their imports.

The commands share a worker for questions about SQL, whose process takes 1 CPU-second to start."""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from functools import cache, cached_property
from pathlib import Path

from tests.integration.fork_server import Request
from tests.polling import wait_until
from tests.sql_worker import shared

_START_SECONDS = 60.0


class ForkedProcess:
    """As subprocess.Popen."""

    def __init__(self, server: str, request: Request) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(server)
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        self._answers = self._connection.makefile()
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended_within(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(["job"], timeout)
        return code

    def _ended_within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], seconds)[0]:
            self.returncode = int(self._answers.readline())
            self.close()
        return self.returncode

    def close(self) -> None:
        """The process continues."""
        self._answers.close()
        self._connection.close()

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    def __init__(self) -> None:
        self._is_up = False
        self._exit = ExitStack()
        self._folder = tempfile.TemporaryDirectory(prefix="sj-")
        self._socket = str(Path(self._folder.name) / "fork.sock")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.fork_server", self._socket],
            stdin=subprocess.PIPE,
        )

    def close(self) -> None:
        self._exit.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()

    @cached_property
    def _sql_worker(self) -> str:
        return self._exit.enter_context(shared(Path(self._folder.name))).address

    def start(
        self, arguments: list[str], environment: dict[str, str], *, output: Path, errors: Path
    ) -> ForkedProcess:
        if not self._is_up:
            wait_until(self._listens, _START_SECONDS, "the fork server listens")
            self._is_up = True
        request = Request(
            arguments=arguments,
            environment=environment,
            folder=str(Path.cwd()),
            output=str(output),
            errors=str(errors),
            # A job asks its own JVM.
            sql_worker="" if arguments[0] == "run" else self._sql_worker,
        )
        return self._exit.enter_context(closing(ForkedProcess(self._socket, request)))

    def _listens(self) -> bool:
        assert self._process.poll() is None, "the fork server has ended"
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self._socket) == 0

    def run(
        self, arguments: list[str], environment: dict[str, str], *, timeout: float
    ) -> "subprocess.CompletedProcess[str]":
        """As subprocess.run, with the output as text."""
        with tempfile.TemporaryDirectory(prefix="sj-") as folder:
            output, errors = Path(folder) / "output", Path(folder) / "errors"
            process = self.start(arguments, environment, output=output, errors=errors)
            try:
                code = process.wait(timeout)
            finally:
                process.kill()
            return subprocess.CompletedProcess(
                arguments, code, output.read_text(), errors.read_text()
            )


@cache
def fork_server() -> ForkServer:
    """Of this process, such as a worker of pytest; it ends with the process."""
    server = ForkServer()
    atexit.register(server.close)
    return server
