"""A program with a terminal, as a user sees it."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_READ_BYTES = 65_536
_PROMPT = b": "


def session(
    command: Sequence[str],
    inputs: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    seconds: float,
) -> tuple[int, str]:
    """Exit code, and all text on the terminal: the output, and each input where it was typed.

    An input is typed when the program prompts: its output ends with a colon and a blank.
    """
    ours, its = pty.openpty()
    with subprocess.Popen(
        command, stdin=its, stdout=its, stderr=its, cwd=folder, env=env
    ) as program:
        os.close(its)
        text, deadline = b"", time.monotonic() + seconds
        waiting = list(inputs)
        while more := _output(ours, deadline):
            text += more
            if text.endswith(_PROMPT) and waiting:
                os.write(ours, waiting.pop(0).encode() + b"\n")
        os.close(ours)
        return program.wait(seconds), text.decode().replace("\r\n", "\n")


def _output(terminal: int, deadline: float) -> bytes:
    """What the program prints next; empty when it has ended."""
    if not select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
        raise AssertionError("the program has printed nothing until the deadline")
    try:
        return os.read(terminal, _READ_BYTES)
    except OSError:  # the program has closed its end
        return b""
