"""Compares Spark with the specification on generated joins.

    python -m tests.semantics.differential N [SEED] [--real-time]

Prints the smallest differing case, as a spec and rows for `streamjoin simulate`.
"""

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import islice
from unittest import SkipTest

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy, integers
from pyspark.sql import SparkSession

from job.semantics.operator import Processor
from job.spec.sides import SIDES
from tests.semantics.case_generator import WAITS, cases
from tests.semantics.join_cases import (
    Batch,
    Case,
    Data,
    differences,
    specified,
)
from tests.semantics.real_time_runner import HEAPS, Heap, run_in_real_time_engine
from tests.semantics.spark_runner import run_on_spark
from tests.semantics.spark_session import start_session

# Spark splits output filters and drops rows before the join that can neither match nor be emitted.
# These rows depend on the optimizer; the results do not.
_COUNTED_IN_THE_JOIN = ("late_rows", "state_rows", "updated_rows", "removed_rows")

PROCESSORS: tuple[Processor, ...] = ("batch", "interval")
_OF_SPARKS_STATE = ("state_rows", "updated_rows", "removed_rows")

WORKERS = 3
"""One more than the cores of a small machine. Constant, so that a seed gives the same cases."""

SHRINKING_SECONDS = 60
"""Seconds to shrink a differing case."""


_REPORT_EVERY = 50
_REAL_TIME = "--real-time"


Check = Callable[[SparkSession, Case, int], list[Batch]]
"""Checks a case, given the number of its seed. Raises DifferenceError."""


class DifferenceError(AssertionError):
    """Spark and the specification differ."""


class Statistics:
    """Counts of the cases that ran."""

    def __init__(self, *, report_every: int | None = None) -> None:
        """`report_every`: write the progress to stderr after this many cases. None: never."""
        self._report_every = report_every
        self._lock = threading.Lock()
        self.cases: Counter[str] = Counter()
        self.batches = 0
        self.records = 0
        self.rows = 0
        self.late_rows = 0
        self.deduplicated = 0
        """Number of cases in which a side has `deduplicate`."""
        self.duplicates = 0
        self.failed = 0
        """Number of records and results on which an expression fails."""

    def add(self, case: Case, batches: Sequence[Batch]) -> None:
        with self._lock:
            self.cases[case.spec["join"]["type"]] += 1
            self.batches += len(batches)
            self.rows += sum(batch.output.total() for batch in batches)
            self.late_rows += sum(batch.late_rows for batch in batches)
            self.deduplicated += any("deduplicate" in case.spec[side] for side in SIDES)
            self.duplicates += sum(sum(batch.duplicates.values()) for batch in batches)
            self.failed += sum(
                batch.failed_results.total()
                + sum(reasons["expression_failed"] for reasons in batch.bad_records.values())
                for batch in batches
            )
            self.records += sum(len(getattr(step, "left", ())) for step in case.steps)
            self.records += sum(len(getattr(step, "right", ())) for step in case.steps)
            if self._report_every and self.cases.total() % self._report_every == 0:
                sys.stderr.write(f"{self.cases.total()} cases, {self.batches} batches so far\n")

    def __str__(self) -> str:
        kinds = "\n".join(f"  {count:5} {kind}" for kind, count in sorted(self.cases.items()))
        return (
            f"{self.cases.total()} cases, {self.batches} batches, {self.records} records, "
            f"{self.rows} output rows, {self.late_rows} late rows, {self.duplicates} duplicates in "
            f"{self.deduplicated} cases with deduplicate, {self.failed} records and results on "
            f"which an expression fails; no difference\n{kinds}"
        )


def check(
    spark: SparkSession,
    case: Case,
    *,
    processor: Processor | None = None,
    heap: Heap = HEAPS[0],
) -> list[Batch]:
    """Run the case on both; DifferenceError with the case if they differ.

    `processor`: the processor of the real-time engine, not Spark's operator, and which part of it.
    """
    if processor is not None:
        waits = any(case.spec[side].get("table") in WAITS for side in SIDES)
        return _check_processor(spark, case, "batch" if waits else processor, heap)
    # Spark's operator drops no duplicates.
    sides = {
        side: {name: of for name, of in case.spec[side].items() if name != "deduplicate"}
        for side in SIDES
    }
    join = {**case.spec["join"], "operator": "spark"}
    case = replace(case, spec={**case.spec, **sides, "join": join})
    expected, phases = specified(case)
    found = list(differences(expected, run_on_spark(spark, case, phases)))
    if "filter" in case.spec["output"]:
        found = [text for text in found if not any(n in text for n in _COUNTED_IN_THE_JOIN)]
    if found:
        raise DifferenceError("\n".join([*found, "", str(case)]))
    return expected


def _check_processor(
    spark: SparkSession, case: Case, processor: Processor, heap: Heap
) -> list[Batch]:
    expected, phases = specified(case, processor=processor)
    running = run_in_real_time_engine(
        spark, case, phases, interval=processor == "interval", heap=heap
    )
    of_phases = iter(expected)
    with closing(running):
        for phase, actual in zip(phases, running, strict=True):
            of_phase = list(islice(of_phases, len(phase.batches)))
            found = [
                text
                for text in differences(of_phase, actual)
                if not any(name in text for name in _OF_SPARKS_STATE)
            ]
            if found:  # the rest would follow from it
                raise DifferenceError(
                    "\n".join([*found, "", f"# processor: {processor}, {heap}", str(case)])
                )
    return expected


def run_many(
    spark: SparkSession,
    count: int,
    *,
    statistics: Statistics,
    seconds: float | None = None,
    first_seed: int = 0,
    real_time: bool = False,
    check_case: Check | None = None,
    of: SearchStrategy[Case] | None = None,
) -> None:
    """Run `count` cases, or fewer if the time is over; raises the shrunk first difference.

    `check_case`: instead of `check`. `of`: the cases, instead of those of two streams.

    A micro-batch of a few rows leaves cores idle, so the cases run on several threads, each with
    its own session and seed: the same cases every time. The first difference ends all threads.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    search = _Search(statistics, deadline, check_case, of, real_time=real_time)
    seeds = range(first_seed, first_seed + count)
    with ThreadPoolExecutor(WORKERS) as pool:
        runs = [
            pool.submit(search.run, spark.newSession(), seeds[worker::WORKERS])
            for worker in range(WORKERS)
        ]
    errors = [error for run in runs if (error := run.exception()) is not None]
    if errors:
        raise min(errors, key=lambda error: len(str(error)))


class _Search:
    """Search for a differing case by several threads."""

    def __init__(
        self,
        statistics: Statistics,
        deadline: float | None,
        check_case: Check | None,
        of: SearchStrategy[Case] | None,
        *,
        real_time: bool,
    ) -> None:
        self._cases = cases() if of is None else of
        self._real_time = real_time
        self._check_case = check_case or self._check
        self._statistics = statistics
        self._deadline = deadline
        self._lock = threading.Lock()
        self._finder: int | None = None
        """Thread that found a differing case; only this thread continues, to shrink it."""

    def run(self, spark: SparkSession, seeds: Iterable[int]) -> None:
        """Generate one case per seed. With many examples per seed, hypothesis mostly makes small
        changes to the previous one."""
        for number in seeds:
            try:
                self._run_one(spark, number)
            except SkipTest:
                return

    def _run_one(self, spark: SparkSession, number: int) -> None:
        found: list[DifferenceError] = []

        @seed(number)
        @settings(
            max_examples=2,  # the first example is always the simplest one
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        )
        # The second example always differs in the first choice. That choice must not be the
        # join type, which would then rarely be inner.
        @given(integers(0, 1_000_000), self._cases)
        def differential(_: int, case: Case) -> None:
            self._skip_if_over()
            if not found and not _has_records(case):
                return
            try:
                self._statistics.add(case, self._check_case(spark, case, number))
            except Exception as error:
                found.append(_as_difference(error, case))
                self._claim(found[-1])
                raise found[-1] from error

        run: Callable[[], None] = differential
        try:
            run()
        finally:  # hypothesis propagates only SkipTest at once
            if found:
                raise min(found, key=lambda error: len(str(error))) from None

    def _check(self, spark: SparkSession, case: Case, number: int) -> list[Batch]:
        rest, of_processor = divmod(number, len(PROCESSORS))
        processor = PROCESSORS[of_processor] if self._real_time else None
        return check(spark, case, processor=processor, heap=HEAPS[rest % len(HEAPS)])

    def _skip_if_over(self) -> None:
        with self._lock:
            finder = self._finder
        over = self._deadline is not None and time.monotonic() >= self._deadline
        if over or finder not in {None, threading.get_ident()}:
            raise SkipTest

    def _claim(self, difference: DifferenceError) -> None:
        """Print the case at once; the user may not need the smallest one."""
        with self._lock:
            if self._finder is not None:
                return
            self._finder = threading.get_ident()
            self._deadline = time.monotonic() + SHRINKING_SECONDS
        sys.stderr.write(f"{difference}\nmaking it smaller, up to {SHRINKING_SECONDS} s\n")


def _has_records(case: Case) -> bool:
    return any(isinstance(step, Data) and (step.left or step.right) for step in case.steps)


def _as_difference(error: Exception, case: Case) -> DifferenceError:
    """An error of one side is a difference, too."""
    if isinstance(error, DifferenceError):
        return error
    return DifferenceError(f"{type(error).__name__}: {error}\n\n{case}")


def main() -> int:
    numbers = [int(text) for text in sys.argv[1:] if text != _REAL_TIME]
    real_time = _REAL_TIME in sys.argv
    count, first_seed = [*numbers, *(1_000, random.randrange(2**31))[len(numbers) :]]
    sys.stdout.write(f"{count} cases; again: python -m tests.semantics.differential {count} ")
    sys.stdout.write(f"{first_seed} {_REAL_TIME if real_time else ''}\n")
    statistics = Statistics(report_every=_REPORT_EVERY)
    started = time.monotonic()
    spark = start_session()
    try:
        run_many(spark, count, statistics=statistics, first_seed=first_seed, real_time=real_time)
    except DifferenceError as difference:
        sys.stdout.write(f"{difference}\n")
        return 1
    finally:
        spark.stop()
    sys.stdout.write(f"{statistics}\nin {time.monotonic() - started:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
