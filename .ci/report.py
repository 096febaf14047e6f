#!/usr/bin/env python3
"""The end of .ci/run: CPU time by level, then everything that failed.

.ci/report.py FOLDER
"""

import json
import sys
from pathlib import Path

CPU_BUDGET_SECONDS = 4800
LAST_LINES = 40


def main(folder: Path) -> int:
    steps = [line.split("\t") for line in lines(folder / "steps")]
    print_cpu_time(folder, {name: int(cpu) for name, _, _, cpu in steps})
    failed = {name: code for name, code, _, _ in steps if code != "0"}
    recorded = lines(folder / "failures")
    other = lines(folder / "ended")
    if not failed and not recorded and not other:
        print("\nEvery step passed.")
        return 0
    print("\n" + " FAILURES ".center(80, "="))
    for name, code in failed.items():
        if name in map(step_of, recorded):
            print(f"step {name} ended with {code}: see below")
            continue
        print(f"step {name} ended with {code}:")
        for line in lines(folder / f"{name}.log")[-LAST_LINES:]:
            print(f"    {line}")
    print("\n".join([*recorded, *other]))
    return 1


def step_of(failure: str) -> str | None:
    """The step of a test in the file of tests/failures.py. None: a line of a message."""
    if not failure.startswith(("FAILED", "ERROR")):
        return None
    return "docker" if " tests/docker/" in failure else "test"


def lines(file: Path) -> list[str]:
    return file.read_text(errors="replace").splitlines() if file.exists() else []


def print_cpu_time(folder: Path, steps: dict[str, int]) -> None:
    total = sum(steps.values())
    print("\nCPU-seconds of all processes:")
    for name, cpu in steps.items():
        print(f"{cpu:8}  {name}")
    for file in sorted(folder.glob("levels-*.json")):
        levels = json.loads(file.read_text())
        print(f"    of a run of pytest: {', '.join(f'{k} {v:.0f}' for k, v in levels.items())}")
    over = f"{total - CPU_BUDGET_SECONDS} more than" if total > CPU_BUDGET_SECONDS else "within"
    print(f"{total:8}  in all, {over} the budget of {CPU_BUDGET_SECONDS}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
