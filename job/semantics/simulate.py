"""A join run on two lists of records, without Spark: what comes out, batch by batch, and why.

Pure: records in, values out. The rules are the operator's; this module decides which records make
up a batch, and keeps the books on those that never reach the join.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from job.instants import from_epoch_ms, utc_text
from job.join_spec.durations import milliseconds
from job.join_spec.expressions import SIDES, Side
from job.join_spec.spec import JoinType
from job.plan.plan import JoinPlan
from job.plan.record_checks import EXPRESSION_FAILED
from job.semantics import events
from job.semantics.backlog import PlannedBatch, backlog_batches
from job.semantics.event_time import BatchWatermarks, HeldBack, SideRead, WatermarkTracker
from job.semantics.json_records import DecodedRow, InputRecord
from job.semantics.operator import OperatorMetrics
from job.semantics.output_json import key_text, object_text
from job.semantics.query import JoinQuery
from job.semantics.rows import JoinedRow, Row
from job.semantics.simulation_plan import SimulationPlan, simulation_plan
from job.semantics.state_manager import StateFormatVersion

DEFAULT_BATCH_SIZE = 1_000


@dataclass(frozen=True)
class OutputRecord:
    value: str
    """JSON, as Spark writes it."""
    key: str | None
    left: InputRecord | None
    right: InputRecord | None


@dataclass(frozen=True)
class Drop:
    """A record that did not get into the join, or not into the output."""

    side: Side
    record: InputRecord
    reason: str
    field: str | None = None
    """The field of the spec that cannot be evaluated on the record."""


@dataclass(frozen=True)
class FailedResult:
    """A result that is not written, because an expression fails on it."""

    field: str
    """Of the spec."""
    left: InputRecord | None
    right: InputRecord | None


@dataclass(frozen=True)
class Step:
    """Something that happened to a record, for its story."""

    side: Side
    record: InputRecord
    what: str


@dataclass(frozen=True)
class SimulatedBatch:
    batch_id: int
    watermarks: BatchWatermarks
    output: list[OutputRecord]
    drops: list[Drop]
    steps: list[Step]
    state_rows: dict[Side, int]
    metrics: OperatorMetrics
    records: dict[Side, int]
    bad_records: dict[Side, Counter[str]]
    null_keys: dict[Side, int]
    failed_results: list[FailedResult]
    held_back_by: HeldBack | None = None
    """The partition whose backlog holds the watermark of this batch back."""


@dataclass
class _Books:
    """What is noted while a batch runs."""

    drops: list[Drop] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    bad_records: dict[Side, Counter[str]] = field(
        default_factory=lambda: {side: Counter() for side in SIDES}
    )
    null_keys: dict[Side, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    failed_results: list[FailedResult] = field(default_factory=list)


class Simulator:
    """A query that is fed by hand, batch by batch."""

    def __init__(self, plan: SimulationPlan) -> None:
        self.plan = plan
        delays = {side: milliseconds(plan.join.side(side).watermark_delay) for side in SIDES}
        self._books = _Books()
        self._query = JoinQuery(plan.operator, WatermarkTracker(delays), self._note)

    def run_batch(self, planned: PlannedBatch) -> SimulatedBatch:
        self._books = _Books()
        records = {side: planned.records(side) for side in SIDES}
        readable = {side: self._readable(side, records[side]) for side in SIDES}
        rows = {side: self._entering(side, readable[side]) for side in SIDES}
        # The watermark follows every readable record, whatever filter it fails.
        read = {side: _read(readable[side], planned.backlog(side)) for side in SIDES}
        batch = self._query.run_batch(rows["left"], rows["right"], read)
        return SimulatedBatch(
            batch_id=batch.batch_id,
            watermarks=batch.watermarks,
            output=self._output(batch.output.rows),
            drops=self._books.drops,
            steps=self._books.steps,
            state_rows={s: self._query.operator.states[s].metrics.num_keys for s in SIDES},
            metrics=batch.output.metrics,
            records={side: len(records[side]) for side in SIDES},
            bad_records=self._books.bad_records,
            null_keys=self._books.null_keys,
            failed_results=self._books.failed_results,
            held_back_by=batch.held_back_by,
        )

    def needs_batch_without_data(self) -> bool:
        return self._query.needs_batch_without_data()

    def restart(self, *, times_lost: bool = False) -> None:
        self._query.restart(times_lost=times_lost)

    def _readable(self, side: Side, records: Sequence[InputRecord]) -> list[DecodedRow]:
        plan, rows = self.plan.side(side), []
        for record in records:
            row = plan.decoder.decode(record)
            failed = None if isinstance(row, str) else plan.failed_field(row)
            if isinstance(row, str) or failed is not None:
                reason = row if isinstance(row, str) else EXPRESSION_FAILED
                self._books.bad_records[side][reason] += 1
                self._books.drops.append(Drop(side, record, reason, failed))
            else:
                row.late_time_us = plan.late_time_us(row.event_time_us)
                rows.append(row)
        return rows

    def _entering(self, side: Side, rows: Sequence[DecodedRow]) -> list[DecodedRow]:
        plan, entering = self.plan.side(side), []
        for row in rows:
            if plan.has_null_key(row):
                self._books.null_keys[side] += 1
            if not plan.passes_filter(row):
                self._books.drops.append(Drop(side, row.record, f"fails {side}.filter"))
            elif not plan.enters_join(row):
                null = plan.has_null_key(row)
                reason = "null key" if null else "can match no row"
                self._books.drops.append(Drop(side, row.record, reason))
            else:
                entering.append(row)
        return entering

    def _output(self, rows: Sequence[JoinedRow]) -> list[OutputRecord]:
        output = self.plan.output
        columns = [(name, compiled.type) for name, compiled in output.columns]
        anti = self.plan.join.join_type is JoinType.LEFT_ANTI
        records = []
        for row in rows:
            failed = output.failed_field(row)
            is_matched = anti and row.right is not None and failed != "join.condition"
            if is_matched or not output.passes_filter(row):
                continue
            if failed is not None:
                sides = (_record_of(row.left), _record_of(row.right))
                self._books.failed_results.append(FailedResult(failed, *sides))
                continue
            env = self.plan.env(row)
            key = output.key
            records.append(
                OutputRecord(
                    object_text(columns, [compiled.run(env) for _, compiled in output.columns]),
                    key_text(key.run(env), key.type) if key else None,
                    _record_of(row.left),
                    _record_of(row.right),
                )
            )
        return records

    def _note(self, event: events.Event) -> None:
        assert isinstance(event.row, DecodedRow)
        record = event.row.record
        if isinstance(event, events.Late):
            self._books.drops.append(Drop(event.side, record, "late"))
        self._books.steps.append(Step(event.side, record, _told(event)))
        if isinstance(event, events.Matched):
            assert isinstance(event.stored, DecodedRow)
            other: Side = "right" if event.side == "left" else "left"
            told = f"matched by {event.side} record {place(record)}"
            self._books.steps.append(Step(other, event.stored.record, told))


def _read(rows: Sequence[DecodedRow], backlog: Collection[int]) -> SideRead:
    return SideRead([(row.record.partition, row.event_time_us) for row in rows], backlog)


def simulate(
    plan: JoinPlan,
    left: Sequence[InputRecord],
    right: Sequence[InputRecord],
    *,
    batch_size: int = DEFAULT_BATCH_SIZE,
    trigger_ms: int | None = None,
    state_format_version: StateFormatVersion = 4,
) -> list[SimulatedBatch]:
    """Runs all records, then the batches without data that the last watermark still asks for.

    Batches are what the records' own `batch` markers say; else, with `trigger_ms`, those whose
    record timestamps fall into one tick of that virtual clock. Of these each record arrives in its
    batch, and no partition has a backlog. Else all records are there from the start, and a batch
    reads up to `batch_size` of each side, as Spark divides a backlog (backlog.py).
    """
    simulator = Simulator(simulation_plan(plan, state_format_version=state_format_version))
    batches: list[SimulatedBatch] = []
    for planned in _batched(left, right, batch_size, trigger_ms):
        if not planned.is_empty or simulator.needs_batch_without_data():
            batches.append(simulator.run_batch(planned))
    while simulator.needs_batch_without_data():
        batches.append(simulator.run_batch(PlannedBatch()))
    return batches


def _batched(
    left: Sequence[InputRecord],
    right: Sequence[InputRecord],
    batch_size: int,
    trigger_ms: int | None,
) -> list[PlannedBatch]:
    if any(record.batch is not None for record in [*left, *right]):
        return _arriving(left, right, lambda record: record.batch or 0)
    if trigger_ms is not None:
        tick = trigger_ms * 1000
        return _arriving(left, right, lambda record: (record.timestamp_us or 0) // tick)
    return list(backlog_batches(left, right, batch_size))


def _arriving(
    left: Sequence[InputRecord],
    right: Sequence[InputRecord],
    number_of: Callable[[InputRecord], int],
) -> list[PlannedBatch]:
    """By number; between two with records, one empty batch stands for all that are missing."""
    groups: dict[int, tuple[list[InputRecord], list[InputRecord]]] = {}
    for index, records in enumerate((left, right)):
        for record in records:
            groups.setdefault(number_of(record), ([], []))[index].append(record)
    batches: list[PlannedBatch] = []
    previous: int | None = None
    for number in sorted(groups):
        if previous is not None and number > previous + 1:
            batches.append(PlannedBatch())
        batches.append(PlannedBatch(*groups[number]))
        previous = number
    return batches


def _record_of(row: Row | None) -> InputRecord | None:
    return row.record if isinstance(row, DecodedRow) else None


def place(record: InputRecord) -> str:
    """Where a record stands in its topic."""
    return f"{record.partition}/{record.offset}"


def _told(event: events.Event) -> str:
    match event:
        case events.Late():
            return f"dropped: late, the watermark had reached {_ms(event.watermark_ms)}"
        case events.FailedPreJoinFilter():
            told = "fails its side's part of join.condition"
            return f"{told}: came out unmatched at once" if event.null_padded else told
        case events.Matched():
            assert isinstance(event.stored, DecodedRow)
            return f"matched the stored record {place(event.stored.record)}"
        case events.Stored():
            return "stored" + (", marked as matched" if event.matched else "")
        case events.NotStored():
            return f"not stored: {event.reason}"
        case events.RemovedByMatch():
            return "left the state: one match is all that was asked"
        case events.Evicted():
            told = f"evicted: the state watermark ({event.predicate.on}) has reached "
            told += _ms(event.predicate.watermark_ms)
            return f"{told}; came out unmatched" if event.null_padded else told


def _ms(watermark_ms: int) -> str:
    return utc_text(from_epoch_ms(watermark_ms))
