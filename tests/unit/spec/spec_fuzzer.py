"""Plans random specs and reports every crash and hang; a SpecError is the expected answer.

`python -m tests.unit.spec.spec_fuzzer N [SEED]`: N specs; the exit code is 1
if one of them crashes or hangs.
"""

import json
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from job.errors import SpecError
from job.plan.explain import explained, plan_as_json
from job.plan.planner import join_plan
from job.spec.spec import spec_from_yaml
from job.spec.variables import variables_hidden
from tests.sql_worker import SQL
from tests.unit.spec.spec_mutator import mutated_specs

ENVIRONMENT = {"X": "hunter2-PLANTED"}
# CPU time, so that the load of the machine does not matter; a spec of the tests takes 10 ms.
SECONDS_MAX = 2.0


class TooSlow(BaseException):
    """The spec took longer than SECONDS_MAX."""


@dataclass(frozen=True)
class Crash:
    text: str
    trace: str


def crash_of(text: str) -> Crash | None:
    """The crash or hang while planning the spec. None: it was planned or refused."""
    try:
        with _time_limit(), variables_hidden(text, ENVIRONMENT):
            plan = join_plan(spec_from_yaml(text, ENVIRONMENT), SQL, state_partitions=2)
            explained(plan)
            json.dumps(plan_as_json(plan), allow_nan=False)
    except SpecError as error:
        if ENVIRONMENT["X"] in str(error):
            return Crash(text, f"shows the value of a variable: {error}")
    except (Exception, TooSlow):
        return Crash(text, traceback.format_exc())
    return None


@contextmanager
def _time_limit() -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def main() -> None:
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    started = time.monotonic()
    kinds: dict[str, Crash] = {}
    for text in mutated_specs(seed, count):
        if crash := crash_of(text):
            lines = crash.trace.strip().splitlines()
            kinds.setdefault("\n".join(lines[-3:]), crash)
    for crash in kinds.values():
        sys.stdout.write(f"--- spec\n{crash.text}\n--- crash\n{crash.trace}\n")
    seconds = time.monotonic() - started
    sys.stdout.write(
        f"seed {seed}: {count} specs, {len(kinds)} kinds of crashes, {seconds:.0f} s\n"
    )
    raise SystemExit(1 if kinds else 0)


if __name__ == "__main__":
    main()
