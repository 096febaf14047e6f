"""Explores schedules of the model of intervals.

python -m tests.unit.delivery.explore_intervals [--schedules 100000] [--from 0]
python -m tests.unit.delivery.explore_intervals --late-tasks   # each has a task of a cut interval
python -m tests.unit.delivery.explore_intervals --matches      # with a table, or with a pick
python -m tests.unit.delivery.explore_intervals --changes      # with changes and undos
python -m tests.unit.delivery.explore_intervals --checks   # of changes while the query runs
python -m tests.unit.delivery.explore_intervals --bugs   # the first schedule that shows each
"""

import argparse
import sys
import time

from tests.unit.delivery.interval_bugs import (
    DRIVER_BUGS,
    LOOP_BUGS,
    PROTOCOL_BUGS,
    shown,
    violation,
    violation_of_a_late_task,
    violation_of_matches,
)
from tests.unit.delivery.interval_changes import violation_of_a_change
from tests.unit.delivery.interval_checks import violation_of_a_check


def main() -> int:
    parser = argparse.ArgumentParser(description="Explore the protocol of intervals.")
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--late-tasks", action="store_true")
    parser.add_argument("--matches", action="store_true")
    parser.add_argument("--changes", action="store_true")
    parser.add_argument("--checks", action="store_true")
    parser.add_argument("--bugs", action="store_true")
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.schedules)
    if options.bugs:
        for bug in (*PROTOCOL_BUGS, *LOOP_BUGS, *DRIVER_BUGS):
            _write(f"{shown(bug, iter(numbers))}  {bug}")
        return 0
    explored = violation_of_a_late_task if options.late_tasks else violation
    if options.matches:
        explored = violation_of_matches
    if options.changes:
        explored = violation_of_a_change
    if options.checks:
        explored = violation_of_a_check
    began, wrong = time.process_time(), 0
    for number in numbers:
        if (text := explored(number)) is not None:
            wrong += 1
            _write(f"schedule {number}: {text}")
    seconds = time.process_time() - began
    _write(f"{len(numbers)} schedules, {wrong} of them wrong, {seconds:.0f} CPU-seconds")
    return 1 if wrong else 0


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
