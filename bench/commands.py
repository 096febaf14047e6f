"""Time of the commands that read a spec, and of a validation over HTTP.

python -m bench.commands                 5 rounds, 2 minutes
python -m bench.commands --rounds 9

Prints medians. Each command is a new process; its process for SQL counts. A client's validation is
measured in a SpecProcess that has answered before.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from threading import Event
from typing import Any

from job.change.spec_process import SpecProcess
from job.plan.validation import ValidationRequest

_SPEC = Path(__file__).parents[1] / "join.example.yaml"
_SIMULATED = 100_000
_STEP_MS = 10
_WARM_CALLS = 20
# The time for one client; 20 s at most are allowed.
_SECONDS_MAX = 20.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.commands")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        files = _records(Path(name))
        measured = {
            "validate": lambda: _command("validate", _SPEC),
            "validate --structure": lambda: _command("validate", _SPEC, "--structure"),
            "test": lambda: _command("test", _SPEC),
            f"simulate, {_SIMULATED:,} rows": lambda: _command("simulate", _SPEC, *files),
        }
        _print("command", "seconds", "CPU-seconds")
        for label, command in measured.items():
            _print(label, *_medians(command, rounds))
    _print("POST /v1/validate, first", *(f"{seconds:.2f}" for seconds in _validations(1)), "")
    warm = _validations(_WARM_CALLS)[1:]
    _print("POST /v1/validate, next", f"{median(warm):.3f}", "")
    return 0


def _print(*cells: str) -> None:
    sys.stdout.write("{:<28}{:>10}{:>14}\n".format(*cells))
    sys.stdout.flush()


def _medians(command: Callable[[], tuple[float, float]], rounds: int) -> tuple[str, str]:
    both = [command() for _ in range(rounds)]
    return f"{median(each[0] for each in both):.2f}", f"{median(each[1] for each in both):.2f}"


def _command(*arguments: str | Path) -> tuple[float, float]:
    """Seconds, and CPU-seconds of the command and its process for SQL."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "job", *arguments],
        check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, cpu


def _validations(count: int) -> list[float]:
    """Seconds of each of some calls."""
    request = ValidationRequest(
        spec=_SPEC.read_text(encoding="utf-8"), state_partitions=2, frozen=None
    )
    specs, seconds = SpecProcess(), []
    try:
        for _ in range(count):
            began = time.monotonic()
            specs.validate(request, Event(), within_seconds=_SECONDS_MAX)
            seconds.append(time.monotonic() - began)
    finally:
        specs.close()
    return seconds


def _records(folder: Path) -> list[str | Path]:
    """Options with files of impressions and clicks."""
    first_ms = 1_700_000_000_000
    options: list[str | Path] = []
    for side, time_field in (("left", "shown_at"), ("right", "clicked_at")):
        path = folder / f"{side}.jsonl"
        with path.open("w", encoding="utf-8") as lines:
            for number in range(_SIMULATED // 2):
                row: dict[str, Any] = {"ad_id": number, time_field: first_ms + number * _STEP_MS}
                row |= {"campaign": "spring", "cost": 0.25, "user": "ada"}
                lines.write(json.dumps(row) + "\n")
        options += [f"--{side}", path]
    return options


if __name__ == "__main__":
    sys.exit(main())
