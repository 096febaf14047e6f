"""A join and its input in steps. The differential test generates, runs and prints such cases."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import yaml

from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.plan.result_id import MATCH_HEADER
from job.semantics.backlog import PlannedBatch
from job.semantics.input_records import InputRecord, records_of_jsonl
from job.semantics.operator import Processor
from job.semantics.simulate import OutputRecord, SimulatedBatch, Simulator
from job.semantics.simulation_plan import simulation_plan
from job.spec.sides import SIDES, Side
from job.spec.spec import spec_from_document
from tests.sql_worker import ROWS, SQL


@dataclass(frozen=True)
class Data:
    """One batch: a line of JSONL per record."""

    left: Sequence[str] = ()
    right: Sequence[str] = ()
    ahead: int = 0
    """Number of the following `Data` whose records existed when this batch was planned: a backlog.
    It ends at the next `Idle`."""


@dataclass(frozen=True)
class Idle:
    """No records until the query has run all batches without data."""


@dataclass(frozen=True)
class Restart:
    """Stop, perhaps before a due batch without data, and start again."""

    before_batch_without_data: bool = False
    times_lost: bool = False
    """Whether a crash loses the event times of the partitions."""


Step = Data | Idle | Restart


@dataclass(frozen=True)
class Case:
    spec: dict[str, Any]
    steps: Sequence[Step]
    partitions: int = 1

    @cached_property
    def plan(self) -> JoinPlan:
        return join_plan(spec_from_document(self.spec), SQL, state_partitions=self.partitions)

    def __str__(self) -> str:
        """Three files for `streamjoin simulate`, and steps that they cannot express."""
        lines = [f"# {self.partitions} partitions", "# --- spec.yaml"]
        lines.append(yaml.safe_dump(self.spec, sort_keys=False))
        for side in SIDES:
            lines += [f"# --- {side}.jsonl", *self._lines(side)]
        lines.append("# --- steps")
        lines += [f"# {number}: {_describe(step)}" for number, step in enumerate(self.steps)]
        return "\n".join(lines)

    def _lines(self, side: Side) -> Iterator[str]:
        for number, step in enumerate(self.steps):
            for text in getattr(step, side, ()):
                record = records_of_jsonl([text], ROWS)[0]
                yield json.dumps(
                    {"batch": number, "partition": record.partition, "value": record.value}
                )


def _describe(step: Step) -> str:
    if not isinstance(step, Data):
        return str(step)
    return f"batch; the records of the next {step.ahead} were there" if step.ahead else "batch"


@dataclass(frozen=True)
class Batch:
    """Compared properties of a batch of Spark or of the specification."""

    batch_id: int
    watermark_ms: int
    output: Counter[tuple[str, str, str]]
    failed_results: Counter[tuple[str, str]]
    """Count by result id and failed field of the spec."""
    late_rows: int
    state_rows: int
    updated_rows: int
    removed_rows: int
    duplicates: dict[Side, int]
    bad_records: dict[Side, Counter[str]]


@dataclass(frozen=True)
class Phase:
    """Batches between a start and the next stop."""

    batches: Sequence[PlannedBatch]
    """A batch without records is one that Spark decides to run."""
    runs_batches_without_data: bool = True
    ends: Restart = Restart()


class Records:
    """Assigns offsets to the records of a side through all steps."""

    def __init__(self) -> None:
        self._next = dict.fromkeys(SIDES, 0)

    def of(self, side: Side, lines: Sequence[str]) -> list[InputRecord]:
        start = self._next[side]
        self._next[side] += len(lines)
        return [
            InputRecord(r.value, start + n, r.partition, r.key, r.timestamp_us)
            for n, r in enumerate(records_of_jsonl(lines, ROWS))
        ]


def specified(case: Case, *, processor: Processor | None = None) -> tuple[list[Batch], list[Phase]]:
    """The batches of the specification, grouped by starts and stops."""
    simulator = Simulator(simulation_plan(case.plan, ROWS, processor=processor))
    batches: list[Batch] = []
    phases: list[Phase] = []
    current: list[PlannedBatch] = []

    def run(planned: PlannedBatch) -> None:
        batches.append(_specified_batch(case.plan, simulator.run_batch(planned)))
        current.append(planned)

    planned = PlannedBatch()
    for step, planned_next in zip([*case.steps, Restart()], _planned(case.steps), strict=True):
        if isinstance(step, Data):
            planned = planned_next
            if not planned.is_empty:
                run(planned)
            continue
        # Spark is configured once per phase to run batches without data or not.
        ran_without_data = any(done.is_empty for done in current)
        before = isinstance(step, Restart) and step.before_batch_without_data
        waits = not before or ran_without_data
        while waits and simulator.needs_batch_without_data():
            run(replace(planned, left=(), right=()))
        if isinstance(step, Restart) and current:
            phases.append(Phase(tuple(current), waits, step))
            current = []
            simulator.restart(times_lost=step.times_lost)
    return batches, phases


def _planned(steps: Sequence[Step]) -> list[PlannedBatch]:
    """For each step, and for the end, the records it reads and the unread partitions."""
    numbers = Records()
    records = [tuple(numbers.of(side, getattr(step, side, ())) for side in SIDES) for step in steps]
    planned: list[PlannedBatch] = []
    reached = 0
    for number, step in enumerate(steps):
        if isinstance(step, Data):
            reached = max(reached, _reach(steps, number))
        rest = records[number + 1 : reached + 1]
        backlog = [frozenset(r.partition for batch in rest for r in batch[n]) for n in (0, 1)]
        planned.append(PlannedBatch(*records[number], *backlog))
    return [*planned, PlannedBatch()]


def _reach(steps: Sequence[Step], number: int) -> int:
    """The last step whose records existed when step `number` was planned."""
    ahead = getattr(steps[number], "ahead", 0)
    for later in range(number + 1, len(steps)):
        if isinstance(steps[later], Idle) or ahead == 0:
            return later - 1
        ahead -= isinstance(steps[later], Data)
    return len(steps) - 1


def _specified_batch(plan: JoinPlan, batch: SimulatedBatch) -> Batch:
    return Batch(
        batch_id=batch.batch_id,
        watermark_ms=batch.watermarks.eviction,
        output=Counter(_output(plan, record) for record in batch.output),
        failed_results=Counter(
            (_id(plan, one.left, one.right), one.field) for one in batch.failed_results
        ),
        late_rows=batch.metrics.num_dropped_by_watermark,
        state_rows=batch.metrics.num_total_state_rows,
        updated_rows=batch.metrics.num_updated_state_rows,
        removed_rows=batch.metrics.num_removed_state_rows,
        duplicates={side: batch.duplicates[side] for side in plan.deduplicated},
        bad_records=batch.bad_records,
    )


def _output(plan: JoinPlan, record: OutputRecord) -> tuple[str, str, str]:
    headers = {**_match_header(plan, record), **record.headers}
    texts = json.dumps([record.key, headers, record.timestamp_ms])
    return _id(plan, record.left, record.right), texts, canonical(record.value)


def _match_header(plan: JoinPlan, record: OutputRecord) -> dict[str, str | None]:
    side = plan.matched_side
    if side is None or side not in plan.join_type.shown_sides:
        return {}
    row = record.left if side == "left" else record.right
    place = None if row is None else f"{plan.side(side).topic}/{row.partition}/{row.offset}"
    return {MATCH_HEADER: place}


def _id(plan: JoinPlan, left: InputRecord | None, right: InputRecord | None) -> str:
    places = [
        "" if found is None else f"{plan.side(side).topic}/{found.partition}/{found.offset}"
        for side, found in zip(SIDES, (left, right), strict=True)
    ]
    shown = plan.identified_sides
    return "|".join(
        place if side in shown else "" for side, place in zip(SIDES, places, strict=True)
    )


def canonical(text: str) -> str:
    """JSON by content: Java and Python format some numbers differently."""
    return json.dumps(json.loads(text), sort_keys=False)


def differences(expected: Sequence[Batch], actual: Sequence[Batch]) -> Iterator[str]:
    """Batches and fields in which Spark differs from the specification."""
    for specified_batch, batch in zip(expected, actual, strict=False):
        for name in Batch.__dataclass_fields__:
            if getattr(specified_batch, name) != getattr(batch, name):
                yield (
                    f"batch {batch.batch_id}, {name}: specified "
                    f"{getattr(specified_batch, name)}, Spark {getattr(batch, name)}"
                )
    if len(expected) != len(actual):
        yield f"number of batches: specified {len(expected)}, Spark {len(actual)}"
