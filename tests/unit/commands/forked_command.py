"""Runs `streamjoin` in forks of a process: with other standard streams, without root's rights.

The calls of one command with the same streams share a fork.
"""

import contextlib
import ctypes
import importlib
import io
import itertools
import json
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import NoReturn, TextIO

import psutil

import job
from job import class_archive
from job.__main__ import main
from job.commands import spec_file
from tests.sql_worker import worker_at
from tests.unit.commands.command_cases import Call, Stream

_CPU_SECONDS_MAX = 60
# Beyond the address space of the worker of pytest, which depends on the machine.
_MORE_MEMORY_BYTES_MAX = 2 << 30
_PATIENCE_SECONDS = 300.0
_POLL_SECONDS = 0.005
# A command waits this long at most for a server that does not answer.
_SERVER_SECONDS_MAX = 0.05
_AT_A_TIME = 16
# Python's exit code if it cannot write the rest of its output.
_UNWRITTEN_OUTPUT = 120

_LIBC = ctypes.CDLL(None)
_CAPABILITY_VERSION = 0x20080522
_READS_ANY_FILE = 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


@dataclass(frozen=True)
class Outcome:
    call: Call
    exit_code: int | None
    """None: a signal or a stack trace has ended the command."""
    errors: str
    """What the command wrote to standard error, and its stack trace, if it ended in one."""


def outcomes(calls: Sequence[Call], folder: Path, sql_worker: str) -> list[Outcome]:
    """`folder`: an empty folder. `sql_worker`: address of the worker that answers the calls.

    The forks are those of a new process. This one may have threads, for example those of a Kafka
    client that another test has made, and a fork would wait for the locks that they hold.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_outcomes, calls, folder, sql_worker).result()


def _outcomes(calls: Sequence[Call], folder: Path, sql_worker: str) -> list[Outcome]:
    for module in pkgutil.walk_packages(job.__path__, "job."):
        importlib.import_module(module.name)
    # `setup` finds everything there, and this file takes half a minute to create.
    class_archive.is_current = lambda _: True
    spec_file.SqlWorker = worker_at(sql_worker)  # type: ignore[assignment,misc]
    assert psutil.Process().num_threads() == 1
    groups = itertools.groupby(calls, lambda call: (call.arguments[:2], call.stdin, call.stdout))
    waiting = [(list(group), folder / str(number)) for number, (_, group) in enumerate(groups)]
    running: list[_Fork] = []
    ended: list[Outcome] = []
    while waiting or running:
        while waiting and len(running) < _AT_A_TIME:
            running.append(_Fork(*waiting.pop()))
        for fork in list(running):
            if fork.has_ended():
                running.remove(fork)
                ended += fork.outcomes()
        time.sleep(_POLL_SECONDS)
    return ended


class _Fork:
    def __init__(self, calls: list[Call], report: Path) -> None:
        self._calls = calls
        self._report = report
        self._deadline = time.monotonic() + _PATIENCE_SECONDS
        self._pid = os.fork()
        if self._pid == 0:
            _run(calls, report)

    def has_ended(self) -> bool:
        if time.monotonic() > self._deadline:
            os.kill(self._pid, signal.SIGKILL)
        pid, self._status = os.waitpid(self._pid, os.WNOHANG)
        return pid != 0

    def outcomes(self) -> Iterator[Outcome]:
        """Of the calls that have ended, and of the one that has ended the process."""
        self._report.touch()
        reported = [json.loads(line) for line in self._report.read_text().splitlines()]
        for call, (exit_code, errors) in zip(self._calls, reported, strict=False):
            yield Outcome(call, exit_code, errors)
        if len(reported) < len(self._calls):
            ended = f"the process has ended with {os.waitstatus_to_exitcode(self._status)}"
            yield Outcome(self._calls[len(reported)], None, ended)


def _run(calls: list[Call], report: Path) -> NoReturn:
    """Ends the process."""
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS_MAX, _CPU_SECONDS_MAX))
        memory = psutil.Process().memory_info().vms + _MORE_MEMORY_BYTES_MAX
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        os.chdir(report.parent)
        _shorten_waits()
        _drop_rights()
        with report.open("w", buffering=1) as lines:
            for number, stream in enumerate((calls[0].stdin, calls[0].stdout)):
                _set_stream(number, stream)
            for call in calls:
                lines.write(json.dumps(_ended(call)) + "\n")
    finally:
        os._exit(0)


def _ended(call: Call) -> tuple[int | None, str]:
    """Exit code and errors, as those of a process."""
    environment = {"STREAMJOIN_STATE_PARTITIONS": "2", "JAVA_HOME": "/none", **call.environment}
    os.environ.update(environment)
    errors = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    sys.stdin, sys.stdout, sys.stderr = _opened(0, "r"), _opened(1, "w"), errors
    sys.argv = ["streamjoin", *call.arguments]
    code: int | None
    try:
        main()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc(file=errors)
        code = None
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        code = _UNWRITTEN_OUTPUT
    for variable in environment:
        del os.environ[variable]
    return code, errors.buffer.getvalue().decode(errors="replace")  # type: ignore[attr-defined]


def _set_stream(number: int, stream: Stream) -> None:
    if stream == "closed":
        os.close(number)
        return
    if stream == "no reader":
        reader, opened = os.pipe()
        os.close(reader)
    else:
        opened = os.open("/dev/full" if stream == "full" else os.devnull, os.O_RDWR)
    os.dup2(opened, number)
    os.close(opened)


def _opened(number: int, mode: str) -> TextIO | None:
    """As Python opens its standard streams. None: the descriptor is closed."""
    with contextlib.suppress(OSError):
        return open(number, mode, encoding="utf-8", closefd=False)  # type: ignore[return-value]
    return None


def _shorten_waits() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("job."):
            for constant, seconds in vars(module).copy().items():
                if constant.endswith("_SECONDS") and isinstance(seconds, float):
                    setattr(module, constant, min(seconds, _SERVER_SECONDS_MAX))


def _drop_rights() -> None:
    """Let the mode of a file count for root, too."""
    if os.geteuid() != 0:
        return
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()
    assert _LIBC.capget(header, sets) == 0
    sets[0] &= ~_READS_ANY_FILE  # the effective set
    assert _LIBC.capset(header, sets) == 0
