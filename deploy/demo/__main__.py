"""The demo: two sample topics joined on this machine, shown live. Ctrl-C stops everything.

    python -m deploy.demo                 until Ctrl-C
    python -m deploy.demo --seconds 60    ends by itself and checks every result
    python -m deploy.demo --demo table    a stream and a table, instead of two streams

It uses the public interfaces: `streamjoin run`, `streamjoin-service` and its HTTP API.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.console import Console

from deploy.demo.check import CheckResult, check_result
from deploy.demo.joins import JOINS, DemoJoin
from deploy.demo.screen import Snapshot, result_table, step
from deploy.demo.service import Figures
from deploy.demo.system import System, engine_note, start_system
from deploy.demo.topics import Feed, OutputTail, output_rows, output_tail
from job.api.screen import live_screen
from job.errors import JobUnavailableError, StreamjoinError
from job.spec.engine import Engine

POLL_SECONDS = 0.5
# Time for the job to read the remaining records and to emit the last results.
CLOSING_SECONDS = 180.0
INTERRUPTED = 130


def main() -> int:
    arguments = _arguments()
    seconds = arguments.seconds
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the same way as Ctrl-C
    try:
        with ExitStack() as running:
            try:
                result = demo(running, console, JOINS[arguments.demo], arguments.engine, seconds)
            finally:
                _ignore_signals()
    except KeyboardInterrupt:
        # A checked run that was interrupted has no result: it must not exit 0.
        return 0 if seconds is None else INTERRUPTED
    except StreamjoinError as error:
        console.print("The demo failed:", style="bold red", end=" ")
        console.print(str(error), markup=False, soft_wrap=True)
        return error.exit_code
    return report_result(result, console)


def demo(
    running: ExitStack, console: Console, join: DemoJoin, engine: Engine, seconds: int | None
) -> CheckResult:
    """Start everything and show it. A run with an end returns the comparison of its results."""
    console.print(engine_note(join, engine), soft_wrap=True, markup=False)
    system = start_system(running, console, join, engine, is_endless=seconds is None)
    servers = system.kafka.bootstrap_servers
    tail = running.enter_context(output_tail(servers, join))
    with Feed(servers, join, seconds) as feed, live_screen(console) as show:
        watch = Watch(join, system, feed, tail, show)
        phase = "until Ctrl-C" if seconds is None else f"sending for {seconds} s"
        watch.until(lambda _: feed.is_done, phase)
        deadline = time.monotonic() + CLOSING_SECONDS
        # The closing orders must get the newest rows of the table, in either engine.
        watch.until(lambda _: system.has_read(feed.ends), "reading the rest", deadline=deadline)
        closing = join.closing(feed.newest_ms)
        feed.send_last(closing.records)
        watch.until(
            lambda now: _has_reached(now, closing.watermark_ms) and system.has_read(feed.ends),
            "emitting the last results",
            deadline=deadline,
        )
    # After the last look at the offsets: the counts of an earlier answer may lack the last batch.
    last = system.figures()
    if last is None:
        raise JobUnavailableError(f"the service at {system.addresses.service} does not answer")
    with step(console, "output topic read and compared"):
        output = output_rows(servers, topic=join.output_topic)
        return check_result(join, engine, feed.delivered, output, last)


@dataclass(frozen=True)
class Watch:
    """Polls the system and shows its state."""

    join: DemoJoin
    system: System
    feed: Feed
    tail: OutputTail
    show: Callable[[Snapshot], None]
    start: float = field(default_factory=time.monotonic)

    def until(
        self,
        condition: Callable[[Figures | None], bool],
        phase: str,
        *,
        deadline: float | None = None,
    ) -> None:
        """Poll until the condition holds or the deadline passes."""
        while True:
            now = self.system.figures()
            is_met = condition(now)
            self.tail.read_on()
            self.show(self._snapshot(phase, now))
            if is_met or (deadline is not None and time.monotonic() > deadline):
                return
            time.sleep(POLL_SECONDS)

    def _snapshot(self, phase: str, now: Figures | None) -> Snapshot:
        return Snapshot(
            join=self.join,
            at=datetime.now(UTC),
            phase=phase,
            elapsed_seconds=time.monotonic() - self.start,
            sent=self.feed.sent,
            figures=now,
            newest_matched=list(self.tail.newest_matched),
            newest_unmatched=list(self.tail.newest_unmatched),
            addresses=self.system.addresses,
        )


def report_result(result: CheckResult, console: Console) -> int:
    console.print()
    console.print(result_table(result))
    console.print()
    if result.is_right:
        console.print("Correct: the results match the expected rows, row by row.", style="green")
        return 0
    console.print("Wrong: the results differ from the expected rows.", style="bold red")
    console.print(str(result.differences), markup=False, soft_wrap=True)
    return 1


def _has_reached(now: Figures | None, watermark_ms: int | None) -> bool:
    """Whether the watermark of the query has reached this time. None: it need not."""
    if watermark_ms is None:
        return True
    if now is None or now.query.watermark is None:
        return False
    return round(now.query.watermark.timestamp() * 1000) >= watermark_ms


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the demo join until Ctrl-C.")
    parser.add_argument(
        "--seconds",
        type=_positive,
        help="produce records for this long, then check the results and end",
    )
    parser.add_argument("--demo", choices=list(JOINS), default="streams")
    parser.add_argument("--engine", type=Engine, choices=list(Engine), default=Engine.MICRO_BATCH)
    return parser.parse_args()


def _positive(text: str) -> int:
    seconds = int(text)
    if seconds < 1:
        raise argparse.ArgumentTypeError(f"{text} must be a positive number of seconds")
    return seconds


def _ignore_signals() -> None:
    """A second Ctrl-C during the stop would kill the processes instead of ending them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
