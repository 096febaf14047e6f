"""The processes of a program under test. Each of them may end at any moment."""

import signal
from collections.abc import Iterable
from contextlib import suppress

import psutil


def tree(pid: int) -> list[psutil.Process]:
    """The process and all its descendants; the process itself comes first."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def name(process: psutil.Process) -> str:
    """Empty if it has ended."""
    with suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


def command_line(process: psutil.Process) -> list[str]:
    """Empty when it has ended."""
    with suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


def local_ports(process: psutil.Process) -> set[int]:
    """Ports of its TCP sockets. Empty when it has ended."""
    with suppress(psutil.NoSuchProcess):
        return {socket.laddr.port for socket in process.net_connections("tcp")}
    return set()


def signal_all(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """In order; processes that have ended are skipped."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def has_ended(process: psutil.Process) -> bool:
    """A condition to wait for: the process has ended."""
    try:
        # An orphan that is not reaped yet has ended.
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def is_stopped(process: psutil.Process) -> bool:
    """A condition to wait for: the process is stopped by a signal, or has ended."""
    try:
        return process.status() in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
    except psutil.NoSuchProcess:
        return True
