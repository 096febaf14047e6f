"""What answers the tests' questions about SQL, in a process that the first question starts."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Self

from job.installation.jars import jar_folder
from job.sql.questions import SqlQuestions
from job.sql.rows import SqlRows
from job.sql.types import SqlType
from job.sql.worker import SqlWorker
from tests.polling import wait_until

ROOT = Path(__file__).parents[1]
WORKER = SqlWorker(jar_folder("spark"), heap_mb=1_024)
SQL = SqlQuestions(WORKER.ask)
ROWS = SqlRows(WORKER.ask)


@cache
def allowed_functions() -> list[str]:
    """Names of the functions that a spec may call."""
    functions = WORKER.ask({"kind": "functions"})["functions"]
    return [each["name"] for each in functions if each["refused"] is None]


def parse_type(ddl: str) -> SqlType:
    [column] = SQL.columns(f"x {ddl}")
    return column.type


class WorkerOfCommands:
    """WORKER answers the commands of this process. Takes the place of SqlWorker, whose process
    each command starts."""

    _commands = count(1)
    not_closed = 0
    """Number of those that a command has not closed. WORKER runs until the tests have ended."""

    def __init__(self, *_: object, **__: object) -> None:
        self._number = next(self._commands)
        WorkerOfCommands.not_closed += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        WorkerOfCommands.not_closed -= 1

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        return WORKER.ask(_apart(question, self._number))


class SharedWorker:
    """Asks the worker of `shared`. Takes the place of SqlWorker."""

    address = ""

    def __init__(self, *_: object, **__: object) -> None:
        self._connection: Connection | None = None
        self._turn = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def ask(self, question: Mapping[str, Any]) -> Any:
        with self._turn:
            if self._connection is None:
                self._connection = Client(self.address, "AF_UNIX")
            self._connection.send(question)
            return self._connection.recv()


def worker_at(address: str) -> type[SharedWorker]:
    return type("WorkerOfForks", (SharedWorker,), {"address": address})


@contextmanager
def shared(folder: Path) -> Iterator[type[SharedWorker]]:
    """A worker for forks of this process, which answers one question at a time. It has a process
    for itself: a process with threads must not fork."""
    address = folder / "sql.sock"
    serving = subprocess.Popen([sys.executable, "-m", __name__, address], cwd=ROOT)
    try:
        wait_until(address.exists, 60, "the worker listens")
        yield type("WorkerOfForks", (SharedWorker,), {"address": str(address)})
    finally:
        serving.terminate()
        serving.wait()


def _serve(listener: Listener) -> None:
    for number in count(1):
        Thread(target=_answer, args=(listener.accept(), number), daemon=True).start()


def _answer(connection: Connection, number: int) -> None:
    with connection, suppress(EOFError, OSError):
        while True:
            connection.send(WORKER.ask(_apart(connection.recv(), number)))


def _apart(question: Mapping[str, Any], command: int) -> dict[str, Any]:
    """Each command numbers its programs and stores from 0."""
    first = command * 100_000
    numbered = {"program", "keep", "store", "stores", "pairs"} & question.keys()
    return {**question, **{name: _increased(question[name], first) for name in numbered}}


def _increased(numbers: Any, by: int) -> Any:
    return numbers + by if isinstance(numbers, int) else [each + by for each in numbers]


if __name__ == "__main__":
    with Listener(sys.argv[1], "AF_UNIX", backlog=64) as clients:
        _serve(clients)
