"""The process of the job that serves on a control socket, for messages that name the process."""

import socket
import struct
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")
"""pid, uid and gid: `struct ucred` of Linux."""


def serving_pid(path: Path) -> int | None:
    """None: no job serves on `path`, or its process is in another PID namespace (a container)."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return None
        return peer_pid(connection)


def peer_pid(connection: socket.socket) -> int | None:
    """PID of the process that listens on the other end. None: as `serving_pid`."""
    size = _CREDENTIALS.size
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid: int = _CREDENTIALS.unpack(credentials)[0]
    return pid or None


def how_to_end(pid: int | None) -> str:
    """The end of a sentence. `pid` None: not known."""
    if pid is None:
        return "end its process (Ctrl-C in its terminal, or `kill` and its PID)"
    return f"end process {pid} (Ctrl-C in its terminal, or `kill {pid}`)"
