"""Measures what a row of state costs: runs with many rows, for the model that `plan` estimates by.

    python -m bench.capacity >> bench/model.toml      10 minutes on 2 slow cores

`python -m bench.model` fits the model to the recorded runs, and checks it.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from bench.__main__ import BROKER_JVM_OPTIONS, DATA, run_folder
from bench.backlog import create_backlog
from bench.load import Click, Impression, Workload, events
from bench.programs import PROGRAMS
from bench.report import machine
from bench.throughput import measure_throughput
from bench.topics import delete_topics
from deploy.local.kafka import EmbeddedKafka

_A_DAY_MS = 86_400_000
# The figures are bytes: they do not change if the machine is busy.
_STALLED_SECONDS = 600.0
# Each batch writes a snapshot of the state, which is in the checkpoint before the run ends.
_SNAPSHOTS = """\
spark.sql.streaming.stateStore.minDeltasForSnapshot 1
spark.sql.streaming.stateStore.maintenanceInterval 1s
"""


@dataclass(frozen=True)
class Case:
    """A join of `records` a side, each with a text of this many letters."""

    name: str
    records: int
    text_bytes: int
    is_held: bool
    """Whether rows never expire; otherwise they expire after 10 or 20 s of event time."""

    @property
    def workload(self) -> Workload:
        kept = Workload("held", watermark_delay_ms=_A_DAY_MS)
        return kept if self.is_held else Workload("evicted")


# Each fits into one batch, and so into the first snapshot.
CASES = (
    Case("held", 50_000, 8, is_held=True),
    Case("held, wide", 50_000, 200, is_held=True),
    Case("evicted", 50_000, 8, is_held=False),
)


def main(names: Sequence[str]) -> int:
    with EmbeddedKafka(DATA / "kafka", jvm_options=BROKER_JVM_OPTIONS) as kafka:
        for case in CASES:
            if not names or case.name in names:
                print(_measure(case, kafka), flush=True)
    return 0


def _measure(case: Case, kafka: EmbeddedKafka) -> str:
    """One entry of model.toml."""
    impressions, clicks = _widened(case)
    waiting = create_backlog(case.workload, impressions, clicks, kafka)
    folder = run_folder()
    with _snapshots_in_each_batch():
        run = measure_throughput(
            PROGRAMS["streamjoin"],
            case.workload,
            waiting,
            kafka,
            folder,
            stalled_seconds=_STALLED_SECONDS,
        )
    delete_topics(kafka, [waiting.left_topic, waiting.right_topic])
    if not run.correct:
        raise SystemExit(f"{case.name}: the result is wrong, see {folder}")
    entry = {
        "run": case.name,
        "machine": machine(),
        "rows": waiting.records,
        "held": case.is_held,
        "text_bytes": case.text_bytes,
        "state_bytes": _live_bytes(folder),
        "changelog_bytes": _bytes(folder, "*.changelog"),
    }
    shutil.rmtree(folder)
    lines = (f"{name} = {json.dumps(value)}" for name, value in entry.items())
    return "\n[[state]]\n" + "\n".join(lines)


def _widened(case: Case) -> tuple[list[Impression], list[Click]]:
    """Text that compression hardly shortens, a different one for each row."""
    impressions, clicks = events(case.workload, case.records)
    return (
        [event._replace(campaign=_text("c", event.ad_id, case)) for event in impressions],
        [event._replace(user=_text("u", event.ad_id, case)) for event in clicks],
    )


def _text(kind: str, ad_id: int, case: Case) -> str:
    return hashlib.shake_128(f"{kind}{ad_id}".encode()).hexdigest(case.text_bytes // 2)


def _live_bytes(folder: Path) -> int:
    """Bytes of the files of the newest snapshot of each partition."""
    return sum(_snapshot_bytes(path) for path in _newest(folder))


def _newest(folder: Path) -> Iterator[Path]:
    snapshots: dict[Path, list[Path]] = {}
    for path in (folder / "checkpoint").rglob("*.zip"):
        snapshots.setdefault(path.parent, []).append(path)
    for of_partition in snapshots.values():
        yield max(of_partition, key=lambda path: int(path.name.split("_")[0].split(".")[0]))


def _snapshot_bytes(snapshot: Path) -> int:
    with ZipFile(snapshot) as files:
        metadata = files.read("metadata").decode()
    named = json.loads(metadata.partition("\n")[2])
    return sum(file["sizeBytes"] for file in named["sstFiles"])


def _bytes(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in (folder / "checkpoint").rglob(pattern))


@contextmanager
def _snapshots_in_each_batch() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "spark-defaults.conf").write_text(_SNAPSHOTS)
        os.environ["SPARK_CONF_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["SPARK_CONF_DIR"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
