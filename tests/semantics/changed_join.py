"""A change of a generated join to another number of state partitions, in the middle of its input.

The specification runs the old query, Spark the new one. It reads as little again as the bounds of
the state allow.
"""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from job.change.start_offsets import KnownOffsets, reach, start_offsets
from job.errors import RetentionError
from job.event_time.partitions import Offsets, Partition, Partitions, RecordedEventTimes
from job.plan.plan import JoinPlan
from job.replay import cut
from job.replay.replay import Replay, late_rows
from job.semantics.backlog import PlannedBatch
from job.semantics.input_records import InputRecord
from job.semantics.simulate import Simulator
from job.semantics.simulation_plan import simulation_plan
from job.spark.watermark import raise_watermark
from job.spec.durations import milliseconds
from job.spec.sides import SIDES, Side
from tests.semantics.differential import DifferenceError
from tests.semantics.job_watermark import JobWatermark
from tests.semantics.join_cases import Batch, Case, Phase, Restart, specified
from tests.semantics.spark_runner import Run, conf, conf_of
from tests.semantics.spark_session import fast_folder
from tests.sql_worker import ROWS

REPLAY_BATCHES = 2
"""The first one reads all records again but the last one, the second one takes over."""


def check_change(spark: SparkSession, case: Case, number: int) -> list[Batch]:
    """The results of the old and the new query together are those of the uninterrupted query.

    `number`: chooses the cut. Returns the batches after the cut. Empty: the case has no change, for
    example because the state is unbounded.
    """
    case = _without_restarts(case)
    expected, phases = specified(case)
    if not phases or any(case.plan.side(side).retention is None for side in SIDES):
        return []
    planned = phases[0].batches
    last = number % len(planned)
    try:
        change = Change(case, planned[: last + 1])
    except RetentionError:  # Fewer than two records are before the cut.
        return []
    changed = replace(case, partitions=case.partitions + 1)
    folder = Path(tempfile.mkdtemp(prefix="streamjoin-", dir=fast_folder()))
    try:
        with conf(spark, conf_of(changed.plan)):
            run = ChangedRun(spark, changed, folder, change)
            [actual] = run.through([Phase([*change.replayed, *planned[last + 1 :]])])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = [*_results(expected[: last + 1]), *_results(actual[REPLAY_BATCHES:])]
    if Counter(found) != Counter(_results(expected)):
        lost = Counter(_results(expected)) - Counter(found)
        more = Counter(found) - Counter(_results(expected))
        text = f"changed after batch {last}: lost {lost}, not expected {more}"
        raise DifferenceError(f"{text}\n\n{case}")
    return expected[last + 1 :]


def _results(batches: Sequence[Batch]) -> list[tuple[str, ...]]:
    return [
        result
        for batch in batches
        for results in (batch.output, batch.failed_results)
        for result in results.elements()
    ]


def _without_restarts(case: Case) -> Case:
    """Without `deduplicate`, which a change refuses, too."""
    sides = {
        side: {name: value for name, value in case.spec[side].items() if name != "deduplicate"}
        for side in SIDES
    }
    steps = [step for step in case.steps if not isinstance(step, Restart)]
    return replace(case, spec={**case.spec, **sides}, steps=steps)


class Change:
    def __init__(self, case: Case, before: Sequence[PlannedBatch]) -> None:
        """`before`: the batches of the old query."""
        plan = case.plan
        simulator = Simulator(simulation_plan(plan, ROWS))
        batches = [simulator.run_batch(batch) for batch in before]
        tracker = simulator._query._tracker
        self.partitions = _with_newest(tracker._partitions)
        ends = [_ends(before[: number + 1]) for number in range(len(before))]
        logged = [
            cut.PlannedBatch(number, ends[number], batch.watermarks.eviction)
            for number, batch in enumerate(batches)
        ]
        first: Offsets = {side: dict.fromkeys(ends[-1][side], 0) for side in SIDES}
        late, late_unknown_before = late_rows(logged, first, None)
        old = cut.Cut("old", logged[-1], tracker.advance(), first, late, RecordedEventTimes())
        records = {side: [one for batch in before for one in batch.records(side)] for side in SIDES}
        self.replay = Replay(
            old_checkpoint="old",
            old_query_id="old",
            old_batch_id=len(before) - 1,
            starts=_starts(plan, old, records),
            ends=old.ends,
            watermark_ms=old.watermark_ms,
            next_watermark_ms=old.next_watermark_ms,
            state_partitions=case.partitions + 1,
            event_times=RecordedEventTimes(),
            late=late,
            late_unknown_before=late_unknown_before,
        )
        self.replayed = self._replayed(records)

    def _replayed(self, records: dict[Side, list[InputRecord]]) -> list[PlannedBatch]:
        starts, ends = self.replay.starts, self.replay.reading_ends
        again = {
            side: [one for one in records[side] if one.offset >= starts[side][one.partition]]
            for side in SIDES
        }
        reading = [[one for one in again[s] if one.offset < ends[s][one.partition]] for s in SIDES]
        last = [[one for one in again[s] if one.offset >= ends[s][one.partition]] for s in SIDES]
        return [PlannedBatch(*reading), PlannedBatch(*last)]


def _with_newest(partitions: Partitions) -> Partitions:
    newest = {side: max(times.values()) for side, times in partitions.event_times.items() if times}
    sides = (
        {n: Partition(0, 0, p.event_time_ms) for n, p in partitions.side(side).items()}
        for side in SIDES
    )
    return Partitions(*sides, newest)


def _ends(batches: Sequence[PlannedBatch]) -> Offsets:
    ends: dict[Side, dict[int, int]] = {side: {} for side in SIDES}
    for side in SIDES:
        for batch in batches:
            ends[side] |= {one.partition: one.offset + 1 for one in batch.records(side)}
    return ends


def _starts(plan: JoinPlan, old: cut.Cut, records: dict[Side, list[InputRecord]]) -> Offsets:
    """As if the timestamp of each record was its event time, so that nothing is read in vain."""
    known: dict[Side, KnownOffsets] = {}
    for side in SIDES:
        needed_ms = old.watermark_ms - milliseconds(reach(plan, side))
        at_time: dict[int, int] = {}
        for one in reversed(records[side]):
            if (at_ms := _event_time_ms(one)) is not None and at_ms >= needed_ms:
                at_time[one.partition] = one.offset
        known[side] = KnownOffsets(dict.fromkeys(old.ends[side], 0), at_time)
    return start_offsets(plan, old, dict.fromkeys(SIDES, 0), known)


def _event_time_ms(record: InputRecord) -> int | None:
    try:
        at = json.loads(record.value or "")["t"]
        if isinstance(at, str):
            since_1970 = datetime.fromisoformat(at) - datetime.fromtimestamp(0, UTC)
            return since_1970 // timedelta(milliseconds=1)
        return int(at)
    except (ValueError, TypeError, KeyError):
        return None


class ChangedRun(Run):
    def __init__(self, spark: SparkSession, case: Case, folder: Path, change: Change) -> None:
        super().__init__(spark, case, folder, change.replay)
        self._change = change

    def _watermark(self, _: Partitions) -> JobWatermark:
        return _ReplayedWatermark(self._plan, self._change)


class _ReplayedWatermark(JobWatermark):
    """As the driver in job/query/driver.py."""

    def __init__(self, plan: JoinPlan, change: Change) -> None:
        super().__init__(plan)
        self._change = change
        self._batches = 0

    def batch_ended(self) -> None:
        self._batches += 1
        query, replay = self.query.result(), self._change.replay
        if self._batches > REPLAY_BATCHES:
            super().batch_ended()
        elif self._batches == REPLAY_BATCHES:
            self._partitions = self._change.partitions
            raise_watermark(query, replay.next_watermark_ms)
        else:
            raise_watermark(query, replay.watermark_ms)
