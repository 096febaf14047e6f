"""Runs a case through the processor of the real-time engine, as spark_runner does through Spark's.

In micro-batches, which feed both ways of it: `interval` runs the part for real time, which judges
late rows by the watermark of the batch and evicts between rows, on the same batches.
"""

import shutil
import tempfile
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from job.dataflow.dataflow import dataflow
from job.join.join import StreamJoin
from job.join.processor import release_states
from job.spec.sides import SIDES, Side
from tests.semantics import spark_runner
from tests.semantics.join_cases import Batch, Case, Phase
from tests.semantics.spark_session import fast_folder


@dataclass(frozen=True)
class Heap:
    """What a state partition has of the heap."""

    bytes: int = 0
    """Limit of its rows there. 0: all rows fit."""
    is_lost: bool = False
    """Whether a restart reads the rows from the state store, as another process would."""


HEAPS = (Heap(), Heap(is_lost=True), Heap(3_000, is_lost=True), Heap(1, is_lost=True))
"""All rows, then some, then none are on the heap."""


def run_in_real_time_engine(
    spark: SparkSession,
    case: Case,
    phases: Sequence[Phase],
    *,
    interval: bool = False,
    heap: Heap = HEAPS[0],
) -> Generator[list[Batch], None, None]:
    """The batches Spark runs, fed in the batches of `phases`: those of a phase run when they are
    asked for. Close it."""
    folder = Path(tempfile.mkdtemp(prefix="streamjoin-", dir=fast_folder()))
    try:
        with spark_runner.conf(spark, spark_runner.conf_of(case.plan)):
            yield from _Run(spark, case, folder, interval=interval, heap=heap).through(phases)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Run(spark_runner.Run):
    def __init__(
        self, spark: SparkSession, case: Case, folder: Path, *, interval: bool, heap: Heap
    ) -> None:
        super().__init__(spark, case, folder)
        self._interval, self._heap = interval, heap
        self._late: list[int] = []
        """Rows that the processor has dropped, in all batches up to each one."""
        self._in_state: list[int] = []
        """Rows in state after each batch. Spark counts keys."""
        self._duplicates: list[dict[Side, int]] = []
        """Of each batch."""

    def _phase(self, phase: Phase) -> list[Batch]:
        ran = len(self._late)
        batches = super()._phase(phase)
        before = [0, *self._late]
        return [
            replace(
                batch,
                late_rows=batch.late_rows + to - of,
                state_rows=state_rows,
                duplicates=duplicates,
            )
            for batch, of, to, state_rows, duplicates in zip(
                *(batches, before[ran:], self._late[ran:], self._in_state[ran:]),
                self._duplicates[ran:],
                strict=False,
            )
        ]

    def _start(self, on_batch: Any) -> StreamingQuery:
        left, right = (self._topics[side].records() for side in SIDES)
        if self._heap.is_lost:
            release_states(self._spark)
        join = StreamJoin(
            *(self._spark, self._plan),
            as_interval=self._interval,
            heap_bytes=self._heap.bytes,
        )
        started = Future[StreamingQuery]()
        of_earlier_runs = self._late[-1] if self._late else 0
        at_start = self._in_state[-1] if self._in_state else 0

        duplicates = dict.fromkeys(self._plan.deduplicated, 0)

        def count(rows: Any, batch_id: int) -> None:
            join.begin_batch(started.result(), self._spark)
            on_batch(rows, batch_id)
            late = sum(join.counts.late_rows(side) for side in SIDES)
            self._late.append(of_earlier_runs + late)
            counts = join.counts
            dropped = {side: counts.duplicate_rows(side) for side in duplicates}
            self._duplicates.append({side: dropped[side] - duplicates[side] for side in dropped})
            duplicates.update(dropped)
            grown = sum(counts.stored_rows(s) - counts.removed_rows(s) for s in SIDES)
            self._in_state.append(at_start + grown)

        rows = dataflow(left, right, self._plan, join)
        writer = rows.writeStream.foreachBatch(count).outputMode(join.output_mode)
        query = writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()
        started.set_result(query)
        return query
