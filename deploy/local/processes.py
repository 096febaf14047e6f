"""Child processes that never outlive this one, and that end on request.

A child is started through this file: run as a program, it requests SIGKILL from Linux for the time
its parent ends, and then becomes the command. The process id stays the same, and no Python code
runs between fork and exec of a process that may have threads.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# For Linux, the parent is the *thread* that started the child. This thread lives as long as the
# process; a caller's thread might not.
_STARTER = ThreadPoolExecutor(1, thread_name_prefix="child-starter")
PR_SET_PDEATHSIG = 1


def start_child(
    command: Sequence[str | Path], *, log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command, its output appended to `log`. It is killed when this process ends, for any
    reason.

    It gets its own session: Ctrl-C reaches only this process, which stops its children in the
    right order.
    """
    words = [sys.executable, "-I", "-S", __file__, str(os.getpid()), *map(str, command)]
    with log.open("ab") as output:
        return _STARTER.submit(
            subprocess.Popen,
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        ).result()


def stop_child(child: subprocess.Popen[bytes], *, grace_seconds: float) -> int:
    """Send SIGTERM, and SIGKILL after the grace period; returns the exit code. Harmless when
    repeated."""
    child.terminate()
    try:
        return child.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def last_lines(log: Path, *, start: int = 0, count: int = 20) -> str:
    """The end of a log, without what was written before byte `start`."""
    with log.open("rb") as lines:
        lines.seek(start)
        return "\n".join(lines.read().decode(errors="replace").splitlines()[-count:])


def _become(command: list[str], *, parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has already ended
            sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606  # there is no shell to need


if __name__ == "__main__":
    _become(sys.argv[2:], parent=int(sys.argv[1]))
