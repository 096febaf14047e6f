"""A seeded random schedule of load and faults on one join, checked by the oracle.

    make soak MINUTES=20            prints its seed
    make soak MINUTES=20 SEED=7     the same faults in the same order, with the same pauses
    make soak ENGINE=real_time      with the real-time engine
    make soak TABLE=latest          the right side is a table
    make soak TABLE=final           the right side is a table, and results are final

The load meanwhile depends on the speed of the machine; the oracle reads the records in Kafka.
"""

import argparse
import os
import random
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from deploy.local.kafka import EmbeddedKafka
from job.spec.engine import Engine
from job.spec.join_conditions import JoinOperator
from tests.faults.breakages import Breaker
from tests.faults.harness import POISON, Harness
from tests.faults.oracle import CheckResult
from tests.faults.proxied_kafka import proxied_kafka
from tests.faults.proxy import Proxy
from tests.faults.table_harness import FinalTableHarness, TableHarness

# Short, because a lost commit is never answered.
ENVIRONMENT = {"STREAMJOIN_TEST_COMMIT_SECONDS": "5"}
TABLES: Mapping[str, type[Harness]] = {"latest": TableHarness, "final": FinalTableHarness}
FAULTS_BETWEEN_CHECKS = 6
SEEDS = 10**6
# Faults that must recover quickly: enough of them for a median.
MORE_OF = ("kill_the_process_tree",) * 2


@dataclass(frozen=True)
class Fired:
    at_seconds: float
    kind: str
    proof: str
    recovered_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.at_seconds:7.1f} s  {self.kind:<32} {self.recovered_seconds:6.1f} s to recover"
            f"  {self.proof}"
        )


@dataclass
class Soak:
    """The events so far."""

    seed: int
    fired: list[Fired] = field(default_factory=list)
    results: list[CheckResult] = field(default_factory=list)
    checkpoint_files: list[int] = field(default_factory=list)
    load: tuple[float, float, float] = (0, 0, 0)


def soak(
    kafka: EmbeddedKafka,
    proxy: Proxy,
    folder: Path,
    *,
    engine: Engine = Engine.MICRO_BATCH,
    operator: JoinOperator = JoinOperator.SPARK,
    table: str | None = None,
    seed: int,
    seconds: float,
    log: Callable[[str], None],
) -> Soak:
    """Run for this many seconds after the first result, with one fault at least. Raises
    AssertionError at the first problem; `log` receives a line for each fault. `table`: None: both
    sides are streams."""
    rng, history = random.Random(seed), Soak(seed)
    harness = (Harness if table is None else TABLES[table])(
        *(kafka, f"soak{seed}", folder),
        engine=engine,
        operator=operator,
        proxy=proxy,
        environment=ENVIRONMENT,
        seed=seed,
    )
    breaker = Breaker(harness, proxy, rng)
    harness.job.start()
    try:
        harness.recovered(time.monotonic())
        began = time.monotonic()
        for kind in _schedule(rng, [*breaker.kinds, *MORE_OF]):
            if time.monotonic() - began >= seconds:
                break
            harness.feed(rng.randrange(20, 400))
            fired_at = time.monotonic()
            proof = breaker.kinds[kind]()
            since = fired_at if kind == "kill_the_process_tree" else time.monotonic()
            recovered = harness.recovered(since)
            history.fired.append(Fired(fired_at - began, kind, proof, recovered))
            log(str(history.fired[-1]))
            if len(history.fired) % FAULTS_BETWEEN_CHECKS == 0:
                _check(harness, history, rng)
        _check(harness, history, rng)
    finally:
        proxy.heal()
        harness.job.__exit__(*sys.exc_info())
        history.load = os.getloadavg()
    return history


def _schedule(rng: random.Random, kinds: list[str]) -> Iterator[str]:
    """All kinds in a random order, then again in another one."""
    while True:
        rng.shuffle(kinds)
        yield from kinds


def _check(harness: Harness, history: Soak, rng: random.Random) -> None:
    """A quiet phase, and the oracle's check of all results so far."""
    history.results.append(harness.check(harness.settle()))
    query = harness.checkpoint / "query"
    history.checkpoint_files.append(sum(1 for path in query.rglob("*") if path.is_file()))
    if rng.random() < 0.5:
        harness.feed_late(10)


def report(history: Soak) -> str:
    by_kind: dict[str, list[float]] = defaultdict(list)
    for fired in history.fired:
        by_kind[fired.kind].append(fired.recovered_seconds)
    last = history.results[-1]
    table = "\n".join(
        f"{kind:<34}{len(seconds):>6}{median(seconds):>10.1f}{max(seconds):>10.1f}"
        for kind, seconds in sorted(by_kind.items())
    )
    return f"""\
seed {history.seed}: {len(history.fired)} faults of {len(by_kind)} kinds; load {history.load[0]:.1f}
{"fault":<34}{"fired":>6}{"median s":>10}{"longest s":>10}   until a new result is out
{table}
rows in: {last.left_rows:,} left, {last.right_rows:,} right, {last.late_rows} of them late
records of {len(POISON)} kinds that cannot be read: {last.unreadable}
rows out: {last.results:,}; expected {last.matched:,} matched, {last.unmatched:,} unmatched
duplicates {last.duplicates}, losses {last.losses}, never joined {last.phantoms}
checks {len(history.results)}; files in the checkpoint at each: {history.checkpoint_files}"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Break a join again and again, and check it.")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--engine", type=Engine, choices=list(Engine), default=Engine.MICRO_BATCH)
    parser.add_argument(
        "--operator", type=JoinOperator, choices=list(JoinOperator), default=JoinOperator.SPARK
    )
    parser.add_argument("--table", choices=list(TABLES), help="the right side is a table")
    arguments = parser.parse_args()
    seed = random.randrange(SEEDS) if arguments.seed is None else arguments.seed
    print(f"SEED={seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix=f"soak-{seed}-"))
    try:
        with proxied_kafka(folder / "kafka") as (kafka, proxy):
            result = soak(
                kafka,
                proxy,
                folder,
                engine=arguments.engine,
                operator=arguments.operator,
                table=arguments.table,
                seed=seed,
                seconds=60 * arguments.minutes,
                log=lambda line: print(line, flush=True),
            )
    except AssertionError as error:
        traceback.print_exc()  # outside of pytest an assertion prints no values
        print(f"WRONG with SEED={seed}: {error}\nall of it is in {folder}", file=sys.stderr)
        return 1
    print(report(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
