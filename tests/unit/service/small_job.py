"""A job as a process of its own, without Spark: `python -m tests.unit.service.small_job SOCKET`."""

import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from job.control import control_socket
from tests.unit.service.builders import SmallJob, batch, status_after


def main() -> None:
    running = status_after(batch(), last_progress_at=datetime.now(UTC))
    with control_socket(Path(sys.argv[1]), SmallJob(running)):
        signal.pause()


if __name__ == "__main__":
    main()
