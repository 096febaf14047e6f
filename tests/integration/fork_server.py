"""Runs jobs and other `streamjoin` commands as forks of a process that has imported what they need.

    python -m tests.integration.fork_server SOCKET

Each connection runs one command: the client sends a Request as a line of JSON. The server answers
with the process id and, once the process has ended, with its exit code.
"""

import gc
import json
import os
import random
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TypedDict

from job.commands import spec_file
from tests.sql_worker import worker_at


class Request(TypedDict):
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    """Working folder."""
    output: str
    """File to which the standard output is appended."""
    errors: str
    sql_worker: str
    """Socket of the worker that answers its questions about SQL, as tests/sql_worker.py. Empty: its
    own worker."""


def import_all() -> None:
    """What a job imports until its query runs."""
    import confluent_kafka.admin  # noqa: F401
    import pyspark.sql.streaming.query  # noqa: F401

    import job.__main__
    import job.control.control_handler
    import job.control.query_runner
    import job.process  # noqa: F401


def serve(listener: socket.socket) -> None:
    """Until standard input ends, with the process that started this one."""
    signal.signal(signal.SIGCHLD, reap)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            monitor(connection)
        connection.close()


def reap(*_: object) -> None:
    """Remove the monitors that have ended. With SIG_IGN the kernel would do it, but would not count
    their CPU time and that of their jobs."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def monitor(connection: socket.socket) -> None:
    """Fork the process of the command, and report its end. Returns only in that process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    line = connection.makefile().readline()
    if not line:  # the client only tried whether the server listens
        os._exit(0)
    request: Request = json.loads(line)
    pid = os.fork()
    if pid == 0:
        connection.close()
        run(request)
    with suppress(OSError):  # the client may have ended
        connection.sendall(f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def run(request: Request) -> None:
    """Become the process that `python -m job ARGUMENTS` starts. Raises SystemExit."""
    os.setpgid(0, 0)
    os.chdir(request["folder"])
    for descriptor, file in ((1, request["output"]), (2, request["errors"])):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.orig_argv = [sys.executable, "-m", "job", *request["arguments"]]
    sys.argv = ["job", *request["arguments"]]
    random.seed()
    if request["sql_worker"]:
        spec_file.SqlWorker = worker_at(request["sql_worker"])  # type: ignore[assignment,misc]
    customize()

    from job.__main__ import main

    main()
    sys.exit(0)


def customize() -> None:
    """Run the first sitecustomize.py of PYTHONPATH, as Python does when it starts."""
    for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        file = Path(folder) / "sitecustomize.py"
        if folder and file.exists():
            spec = spec_from_file_location("sitecustomize", file)
            assert spec is not None
            assert spec.loader is not None
            spec.loader.exec_module(module_from_spec(spec))
            return


if __name__ == "__main__":
    import_all()
    gc.freeze()  # no job collects these objects
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(sys.argv[1])
        server.listen()
        serve(server)
