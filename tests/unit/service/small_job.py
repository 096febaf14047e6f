"""A job as a process of its own, without Spark.

`python -m tests.unit.service.small_job SOCKET [busy|conflict]`: it answers all, is busy with
another look-up, or is in a state that allows nothing.
"""

import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from job.errors import BusyError, ConflictError
from job.protocol.control import control_socket
from tests.unit.service.answers import all_answers
from tests.unit.service.builders import SmallJob, batch, broker_report, status_after

LOOK_UPS = ("state", "state_count", "explain")
ONE_AT_A_TIME = {"busy": (*LOOK_UPS, "validate"), "conflict": LOOK_UPS}


def main() -> None:
    now = datetime.now(UTC)
    running = status_after(batch(), last_progress_at=now, brokers=broker_report(answered_at=now))
    path, *mood = sys.argv[1:]
    job = SmallJob(running, allowed=() if mood == ["conflict"] else None)
    refusals = {
        "busy": BusyError("ask again", retry_after_seconds=2.5),
        "conflict": ConflictError("there is no state", allowed=["resume"]),
    }
    job.answers = {
        **all_answers(),
        **{question: refusals[name] for name in mood for question in ONE_AT_A_TIME[name]},
    }
    with control_socket(Path(path), job):
        signal.pause()


if __name__ == "__main__":
    main()
