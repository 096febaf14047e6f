"""Simulates a join on two lists of records, without a Spark session.

The rules are those of the operator; this module divides the records into batches, and logs
the results and the records that do not reach the join.
"""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeAlias

from job.plan.plan import JoinPlan
from job.semantics import events
from job.semantics.backlog import PlannedBatch, backlog_batches
from job.semantics.event_time import BatchWatermarks, HeldBack, SideRead, WatermarkTracker
from job.semantics.input_records import InputRecord
from job.semantics.operator import OperatorMetrics
from job.semantics.query import JoinQuery
from job.semantics.rows import JoinedRow, Key, Row
from job.semantics.simulated_side import BadRecord, DecodedRow, OtherRecord
from job.semantics.simulation_plan import SimulationPlan, simulation_plan
from job.spec.durations import milliseconds
from job.spec.sides import SIDES, Side
from job.sql.rows import SqlRows

DEFAULT_BATCH_SIZE = 1_000


@dataclass(frozen=True)
class OutputRecord:
    value: str
    """JSON in the format of Spark."""
    key: str | None
    headers: Mapping[str, str | None]
    """Besides `streamjoin-id`."""
    timestamp_ms: int | None
    """None: the time of writing."""
    left: InputRecord | None
    right: InputRecord | None


@dataclass(frozen=True)
class Drop:
    """A record that did not enter the join or the output."""

    side: Side
    record: InputRecord
    reason: str
    field: str | None = None
    """Field of the spec that fails on the record. None: another reason."""


@dataclass(frozen=True)
class FailedResult:
    """A result that is not emitted, because an expression fails on it."""

    field: str
    """Field of the spec."""
    left: InputRecord | None
    right: InputRecord | None


@dataclass(frozen=True)
class SimulatedBatch:
    batch_id: int
    watermarks: BatchWatermarks
    output: list[OutputRecord]
    drops: list[Drop]
    join_events: list[events.OfJoin]
    state_rows: dict[Side, int]
    """Rows in state at the end of the batch."""
    duplicates: Counter[Side]
    stored_ids: dict[Side, int]
    """Number of ids in state of each side with `deduplicate`."""
    metrics: OperatorMetrics
    records: dict[Side, int]
    bad_records: dict[Side, Counter[str]]
    null_keys: dict[Side, int]
    failed_results: list[FailedResult]
    keys: list[tuple[Side, InputRecord, str]]
    """Key of each readable record as text."""
    held_back_by: HeldBack | None = None
    """The partition whose backlog holds back the watermark of this batch. None: no partition."""


ReadRecords: TypeAlias = Mapping[Side, Sequence[DecodedRow | BadRecord | OtherRecord]]


@dataclass
class _BatchLog:
    """Collects what happens in a batch."""

    drops: list[Drop] = field(default_factory=list)
    join_events: list[events.OfJoin] = field(default_factory=list)
    bad_records: dict[Side, Counter[str]] = field(
        default_factory=lambda: {side: Counter() for side in SIDES}
    )
    null_keys: dict[Side, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    duplicates: Counter[Side] = field(default_factory=Counter)
    failed_results: list[FailedResult] = field(default_factory=list)
    keys: list[tuple[Side, InputRecord, str]] = field(default_factory=list)


class Simulator:
    """A query that runs the batches that the caller passes."""

    def __init__(self, plan: SimulationPlan) -> None:
        self.plan = plan
        delays = {
            side: milliseconds(plan.join.side(side).watermark_delay) for side in plan.join.streams
        }
        self._log = _BatchLog()
        tracker = WatermarkTracker(delays)
        self._query = JoinQuery(plan.operator, tracker, self._note, plan.deduplication)

    def read(self, planned: PlannedBatch) -> ReadRecords:
        return {
            side: list(self.plan.side(side).reader.read(planned.records(side))) for side in SIDES
        }

    def run_batch(
        self, planned: PlannedBatch, records: ReadRecords | None = None
    ) -> SimulatedBatch:
        """`records`: the result of `read`. Call `read` in the order of the batches."""
        self._log = _BatchLog()
        records = records or self.read(planned)
        readable = {side: self._readable(side, records[side]) for side in SIDES}
        rows = {side: self._entering(side, readable[side]) for side in SIDES}
        # The watermark follows every readable record, also one that fails a filter.
        read = {side: _read(readable[side], planned.backlog(side)) for side in SIDES}
        self.plan.pairs.prepare(self._possible_pairs(rows))
        batch = self._query.run_batch(rows["left"], rows["right"], read)
        return SimulatedBatch(
            batch_id=batch.batch_id,
            watermarks=batch.watermarks,
            output=self._output(batch.output.rows),
            drops=self._log.drops,
            join_events=self._log.join_events,
            state_rows={s: self._query.operator.states[s].num_rows for s in SIDES},
            duplicates=self._log.duplicates,
            stored_ids={
                s: deduplicator.stored_ids for s, deduplicator in self._query.deduplicators.items()
            },
            metrics=batch.output.metrics,
            records={side: len(records[side]) for side in SIDES},
            bad_records=self._log.bad_records,
            null_keys=self._log.null_keys,
            failed_results=self._log.failed_results,
            keys=self._log.keys,
            held_back_by=batch.held_back_by,
        )

    def needs_batch_without_data(self) -> bool:
        return self._query.needs_batch_without_data()

    def restart(self, *, times_lost: bool = False) -> None:
        self._query.restart(times_lost=times_lost)

    def _readable(
        self, side: Side, records: Sequence[DecodedRow | BadRecord | OtherRecord]
    ) -> list[DecodedRow]:
        rows = []
        for row in records:
            if isinstance(row, BadRecord):
                self._log.bad_records[side][row.reason] += 1
                self._log.drops.append(Drop(side, row.record, row.reason, row.field))
            elif isinstance(row, OtherRecord):
                self._log.drops.append(Drop(side, row.record, self._filtered(side, row.record)))
            else:
                self._log.keys.append((side, row.record, row.key_text))
                rows.append(row)
        return rows

    def _entering(self, side: Side, rows: Sequence[DecodedRow]) -> list[DecodedRow]:
        plan, entering = self.plan.side(side), []
        for row in rows:
            if row.has_null_key:
                self._log.null_keys[side] += 1
            if not row.passes_filter:
                reason = self._filtered(side, row.record, is_null=row.filter_is_null)
                self._log.drops.append(Drop(side, row.record, reason))
            elif not (plan.passes_job_filters(row) and plan.enters_join(row)):
                self._log.drops.append(self._unmatchable(side, row))
            else:
                entering.append(row)
        return entering

    def _filtered(self, side: Side, record: InputRecord, *, is_null: bool = False) -> str:
        of_side = self.plan.join.side(side)
        if record.value is None and of_side.drops_tombstones:
            return f"tombstone, {side}.on_tombstone is drop"
        fields = "filter" if of_side.envelope is None else "operations or filter"
        return f"{side}.{fields} is null" if is_null else f"fails {side}.{fields}"

    def _unmatchable(self, side: Side, row: DecodedRow) -> Drop:
        return Drop(side, row.record, "null_key" if row.has_null_key else "cannot match")

    def _output(self, rows: Sequence[JoinedRow]) -> list[OutputRecord]:
        anti = self.plan.join.join_type.anti_side is not None
        records = []
        for row, result in zip(rows, self.plan.output.results(rows), strict=True):
            if result is None:
                continue
            failed = result.failed_field
            if anti and None not in row and failed != "join.condition":
                continue
            sides = (_record_of(row.left), _record_of(row.right))
            if failed is not None:
                self._log.failed_results.append(FailedResult(failed, *sides))
                continue
            assert result.value is not None
            records.append(
                OutputRecord(result.value, result.key, result.headers, result.timestamp_ms, *sides)
            )
        return records

    def _possible_pairs(
        self, rows: Mapping[Side, Sequence[DecodedRow]]
    ) -> Iterator[tuple[DecodedRow, DecodedRow]]:
        """Pairs of equal keys of which a row is new in this batch."""
        operator = self.plan.operator
        new = {side: _by_key(operator.of(side).key, rows[side]) for side in SIDES}
        for key, lefts in new["left"].items():
            for left in lefts:
                yield from ((left, right) for right in new["right"].get(key, ()))
                yield from ((left, right) for right in self._stored("right", key))
        for key, rights in new["right"].items():
            for right in rights:
                yield from ((left, right) for left in self._stored("left", key))

    def _stored(self, side: Side, key: Key) -> Iterator[DecodedRow]:
        for row in self._query.operator.states[side].get(key):
            assert isinstance(row, DecodedRow)
            yield row

    def _note(self, event: events.Event) -> None:
        assert isinstance(event.row, DecodedRow)
        record = event.row.record
        if isinstance(event, events.Late):
            self._log.drops.append(Drop(event.side, record, "late"))
        if isinstance(event, events.Duplicate):
            self._log.duplicates[event.side] += 1
            self._log.drops.append(Drop(event.side, record, "duplicate"))
            return
        self._log.join_events.append(event)


def _read(rows: Sequence[DecodedRow], backlog: Collection[int]) -> SideRead:
    return SideRead([(row.record.partition_of_side, row.event_time_us) for row in rows], backlog)


def _by_key(
    key_of: Callable[[Row], Key], rows: Sequence[DecodedRow]
) -> dict[Key, list[DecodedRow]]:
    by_key: dict[Key, list[DecodedRow]] = {}
    for row in rows:
        by_key.setdefault(key_of(row), []).append(row)
    return by_key


def simulate(
    plan: JoinPlan,
    rows: SqlRows,
    left: Sequence[InputRecord],
    right: Sequence[InputRecord],
    *,
    batch_size: int = DEFAULT_BATCH_SIZE,
    trigger_ms: int | None = None,
) -> list[SimulatedBatch]:
    """Runs all records, then the batches without data for the last watermark.

    Records with `batch` numbers are read in those batches. With `trigger_ms`, a batch reads the
    records with timestamps in one interval of a virtual clock. In both cases a record arrives in
    its batch, and no partition has a backlog. Otherwise all records exist from the start, and a
    batch reads up to `batch_size` of each side, as Spark divides a backlog (backlog.py), a table
    before its stream.
    """
    planned = simulation_plan(plan, rows)
    with closing(planned):
        batches = _batched(left, right, batch_size, trigger_ms, plan.table_side)
        return list(_simulated(Simulator(planned), batches))


def _simulated(simulator: Simulator, batches: Sequence[PlannedBatch]) -> Iterator[SimulatedBatch]:
    with closing(_read_ahead(simulator, batches)) as read:
        for planned, records in read:
            if not planned.is_empty or simulator.needs_batch_without_data():
                yield simulator.run_batch(planned, records)
    while simulator.needs_batch_without_data():
        yield simulator.run_batch(PlannedBatch())


def _read_ahead(
    simulator: Simulator, batches: Sequence[PlannedBatch]
) -> Generator[tuple[PlannedBatch, ReadRecords]]:
    """Spark, another process, reads a batch while the one before it runs."""
    with ThreadPoolExecutor(1) as ahead:
        read = (ahead.submit(simulator.read, planned) for planned in batches)
        following = next(read, None)
        for planned in batches:
            assert following is not None
            records = following.result()
            following = next(read, None)
            yield planned, records


def _batched(
    left: Sequence[InputRecord],
    right: Sequence[InputRecord],
    batch_size: int,
    trigger_ms: int | None,
    table: Side | None,
) -> list[PlannedBatch]:
    if any(record.batch is not None for record in [*left, *right]):
        return _arriving(left, right, lambda record: record.batch or 0)
    if trigger_ms is not None:
        tick = trigger_ms * 1000
        return _arriving(left, right, lambda record: (record.timestamp_us or 0) // tick)
    if table is None:
        return list(backlog_batches(left, right, batch_size))
    of_left = backlog_batches(left, (), batch_size)
    of_right = backlog_batches((), right, batch_size)
    return [*of_left, *of_right] if table == "left" else [*of_right, *of_left]


def _arriving(
    left: Sequence[InputRecord],
    right: Sequence[InputRecord],
    number_of: Callable[[InputRecord], int],
) -> list[PlannedBatch]:
    """Batches by number. One empty batch replaces all missing numbers between two batches."""
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
