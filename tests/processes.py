"""The processes of a program under test: Spark's Python workers end whenever they like."""

import signal
from collections.abc import Iterable
from contextlib import suppress

import psutil


def tree(pid: int) -> list[psutil.Process]:
    """The process and all it has started, and they in turn; the first one is itself."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def name(process: psutil.Process) -> str:
    """Empty when it has ended."""
    with suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


def command_line(process: psutil.Process) -> list[str]:
    """Empty when it has ended."""
    with suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


def signal_all(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """In their order; those that have ended need none."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def has_ended(process: psutil.Process) -> bool:
    """A condition to wait for: the process is no more."""
    try:
        # An orphan that nobody has reaped yet has ended all the same.
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
