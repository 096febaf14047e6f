#!/usr/bin/env python3
"""Runs one step of .ci/run, and counts the CPU time of all its processes.

    .ci/step.py NAME COMMAND…

Processes whose parent has ended become children of this one, which therefore counts daemons and
killed programs too. `$CI_RESULTS/steps` gets a line: name, exit code, seconds, CPU-seconds.
"""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def main(name: str, *command: str) -> int:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began = time.monotonic()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    signal.signal(signal.SIGTERM, lambda *_: end(child.pid))
    code = wait_for(child.pid)
    end_orphans()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, seconds = used.ru_utime + used.ru_stime, time.monotonic() - began
    with (Path(os.environ["CI_RESULTS"]) / "steps").open("a") as file:
        file.write(f"{name}\t{code}\t{seconds:.0f}\t{cpu:.0f}\n")
    print(f"{name}: exit code {code}, {seconds:.0f} s, {cpu:.0f} CPU-seconds", flush=True)
    return code


def end(group: int) -> None:
    with suppress(ProcessLookupError):  # .ci/run may signal twice
        os.killpg(group, signal.SIGTERM)


def wait_for(pid: int) -> int:
    """The exit code of the command. The orphans that end before it are waited for too."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def end_orphans() -> None:
    """Their own children become children of this process in turn."""
    with suppress(ChildProcessError):
        while True:
            for pid in children():
                os.kill(pid, signal.SIGKILL)
            os.wait()


def children() -> list[int]:
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with suppress(OSError):  # it has ended
            status = (process / "stat").read_text(errors="replace")
            if int(status.rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(process.name))
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
