"""What `streamjoin run` prints on a terminal: a summary at the start, then a line a minute."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from job.api.query import QueryView
from job.api.texts import progress_line
from job.plan.plan import JoinPlan
from job.protocol.status import JobStatus
from job.settings import JobSettings
from job.spec.sides import SIDES

LINE_SECONDS = 60.0


@contextmanager
def report_on_terminal(
    plan: JoinPlan, spec_file: Path, settings: JobSettings, status: Callable[[], JobStatus]
) -> Iterator[None]:
    """Prints while the query runs. Prints nothing if the log is JSON or goes to no terminal."""
    if settings.log_format != "auto" or not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()

    def print_lines() -> None:
        while not ended.wait(LINE_SECONDS):
            now = datetime.now(UTC)
            _print(progress_line(QueryView.of(status(), now), now))

    _print(summary_line(plan, spec_file))
    threading.Thread(target=print_lines, name="terminal", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def summary_line(plan: JoinPlan, spec_file: Path) -> str:
    left, right = (plan.side(side).topic for side in SIDES)
    return (
        f"{plan.name}: {plan.join_type.value} join of {left} and {right} into {plan.output.topic}, "
        f"{plan.output.delivery.value}, checkpoint {plan.checkpoint}. In another terminal: "
        f"`streamjoin status {spec_file}`, or `streamjoin-service` for the status page. Ctrl-C "
        "stops the job"
    )


def _print(line: str) -> None:
    sys.stderr.write(line + "\n")
