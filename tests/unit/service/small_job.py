"""A job as a separate process, without Spark.

`python -m tests.unit.service.small_job SOCKET [busy|conflict]`: it answers every call, or refuses
lookups because of another lookup or because of its state.
"""

import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from job.errors import BusyError, ConflictError
from job.protocol.control import control_socket
from tests.unit.service.answers import all_answers
from tests.unit.service.builders import SmallJob, batch, broker_report, status_after

LOOKUPS = ("state", "state_count", "explain")
ONE_AT_A_TIME = {"busy": (*LOOKUPS, "validate"), "conflict": LOOKUPS}


def main() -> None:
    now = datetime.now(UTC)
    running = status_after(batch(), last_progress_at=now, brokers=broker_report(answered_at=now))
    path, *refusal = sys.argv[1:]
    job = SmallJob(running, allowed=() if refusal == ["conflict"] else None)
    refusals = {
        "busy": BusyError("repeat the call", retry_after_seconds=2.5),
        "conflict": ConflictError("there is no state", allowed=["resume"]),
    }
    job.answers = {
        **all_answers(),
        **{call: refusals[name] for name in refusal for call in ONE_AT_A_TIME[name]},
    }
    with control_socket(Path(path), job):
        signal.pause()


if __name__ == "__main__":
    main()
