"""Joins a large backlog with uneven partitions, and prints the result.

    python -m tests.integration.uneven_backlog [PAIRS] [--ahead] [--even]

Prints results, late rows, the peak of rows in state, records per second and the time to the first
result, and CPU seconds of the job. `--ahead`: the right topic begins an hour after the left one.
`--even`: the partitions are alike.
"""

import sys
import tempfile
import time
from pathlib import Path

from bench.load import HOUR_MS
from deploy.local.kafka import EmbeddedKafka
from tests.integration.jobs import Job
from tests.integration.topics import count_all
from tests.integration.uneven import Uneven
from tests.polling import wait_until

_SECONDS = 900


def main() -> None:
    pairs = int(next((word for word in sys.argv[1:] if word.isdecimal()), "300000"))
    ahead_ms = HOUR_MS if "--ahead" in sys.argv else 0
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder) / "kafka") as kafka:
        even = "--even" in sys.argv
        uneven = Uneven(kafka, "uneven", pairs, ahead_ms=ahead_ms, all_match=True, even=even)
        uneven.create()
        name, spec = uneven.spec(Path(folder))
        started = time.monotonic()
        with Job(spec, Path(folder)) as job:
            out = f"{name}.out"
            first: list[float] = []

            def read_all() -> bool:
                if not first and count_all(kafka.bootstrap_servers, out):
                    first.append(time.monotonic() - started)
                status = job.status()
                totals = status.totals if status is not None else None
                return totals is not None and totals.left.records + totals.right.records == (
                    2 * pairs
                )

            wait_until(read_all, _SECONDS, "all records are read")
            status = job.status()
            assert status is not None
            times = [process.cpu_times() for process in job.tree]
            batches = job.ask("progress")["result"]["batches"]
            rows = [batch["state_rows"] for batch in batches]
            begun = min(batch["started_at"] for batch in batches)
            print(  # noqa: T201
                f"pairs {pairs}, results {count_all(kafka.bootstrap_servers, out)}, "
                f"late {status.totals.late_rows}, batches {status.totals.batches}, "
                f"batch seconds {status.totals.batch_seconds:.1f}, "
                f"records/s {2 * pairs / status.totals.batch_seconds:.0f}, "
                f"peak of state rows {max(row or 0 for row in rows)}, "
                f"first result after {first[0] if first else -1:.1f} s, begun {begun}, "
                f"CPU seconds {sum(each.user + each.system for each in times):.0f}"
            )
            for batch in batches:
                sides = [batch[side] for side in ("left", "right")]
                print(  # noqa: T201
                    batch["batch_id"],
                    [side["records"] for side in sides],
                    [side["end_offsets"] for side in sides],
                    batch["state_rows"],
                    batch["watermark_ms"],
                    batch["late_rows"],
                    f"{batch['duration_seconds']:.1f} s",
                )


if __name__ == "__main__":
    main()
