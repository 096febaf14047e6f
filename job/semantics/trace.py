"""Text of a simulation, batch by batch."""

from collections import Counter
from collections.abc import Iterator, Sequence

from job.instants import time_text
from job.plan.plan import JoinPlan
from job.plan.record_checks import EXPRESSION_FAILED
from job.protocol.reasons import REASONS
from job.semantics.events import Deleted
from job.semantics.input_records import InputRecord
from job.semantics.simulate import FailedResult, SimulatedBatch
from job.semantics.simulated_side import DecodedRow
from job.spec.sides import SIDES

DROPPED = "dropped"
_PLACES_MAX = 5


def batch_lines(plan: JoinPlan, batches: Sequence[SimulatedBatch]) -> Iterator[str]:
    """Input and output of each batch, and the reasons of records that did not enter the join."""
    for batch in batches:
        watermark = time_text(batch.watermarks.eviction)
        yield f"batch {batch.batch_id} · watermark {watermark}{_held_back_text(plan, batch)}"
        for side in SIDES:
            yield f"  {side}: {batch.records[side]} records, {batch.state_rows[side]} in state"
        yield from _deletes(plan, batch)
        drops = Counter((drop.side, drop.reason, drop.field or "") for drop in batch.drops)
        for (side, reason, field), count in sorted(drops.items()):
            same = (side, reason, field)
            records = [d.record for d in batch.drops if (d.side, d.reason, d.field or "") == same]
            detail = f"{reason} in {field}" if field else reason
            yield f"  {side}: {count} {outcome(plan, reason)}, {detail} ({_places(records)})"
        for failed in batch.failed_results:
            yield f"  output: 1 {failed_text(plan, failed)}"
        yield f"  {len(batch.output)} out"
        yield from (f"    {record.value}" for record in batch.output)


def _deletes(plan: JoinPlan, batch: SimulatedBatch) -> Iterator[str]:
    """Records of a table that delete the row of their key."""
    deletes = [event for event in batch.join_events if isinstance(event, Deleted)]
    kinds = {True: "deleted the row of the key", False: "deleted nothing: the key had no row"}
    if plan.is_as_of:
        kinds = {False: "deleted the key from its event time on"}
    for had_row, what in kinds.items():
        records = [
            event.row.record
            for event in deletes
            if isinstance(event.row, DecodedRow) and (event.before is not None) == had_row
        ]
        if records:
            yield f"  {plan.table_side}: {len(records)} {what} ({_places(records)})"


def _places(records: Sequence[InputRecord]) -> str:
    shown = ", ".join(map(place, records[:_PLACES_MAX]))
    return f"{shown}, …" if len(records) > _PLACES_MAX else shown


def place(record: InputRecord) -> str:
    """Partition and offset of a record; with several topics also the topic."""
    within = f"{record.partition}/{record.offset}"
    return within if record.topic is None else f"{record.topic}/{within}"


def outcome(plan: JoinPlan, reason: str) -> str:
    """Outcome of a record that does not enter the join: dropped, dead letter or failure."""
    letters = plan.dead_letter
    if plan.fails_on_bad_records and reason in REASONS:
        return "at which the query FAILS"
    if letters is None:
        return DROPPED
    is_dead = {**dict.fromkeys(REASONS, True), "late": letters.takes_late_rows}
    is_dead["null_key"] = letters.takes_null_keys
    return "to the dead letters" if is_dead.get(reason, False) else DROPPED


def failed_text(plan: JoinPlan, failed: FailedResult) -> str:
    """Outcome of a result on which an expression fails, with its records."""
    places = [
        f"{side} {place(record)}"
        for side, record in zip(SIDES, (failed.left, failed.right), strict=True)
        if record is not None
    ]
    what = outcome(plan, EXPRESSION_FAILED)
    return f"{what}, {EXPRESSION_FAILED} in {failed.field} ({', '.join(places)})"


def _held_back_text(plan: JoinPlan, batch: SimulatedBatch) -> str:
    """The partition whose backlog holds back the watermark of `batch`; empty if none does."""
    slowest = batch.held_back_by
    if slowest is None:
        return ""
    partition = plan.side(slowest.side).topics.label(slowest.partition)
    newest = slowest.newest_ms
    read = "no event time read yet" if newest is None else f"read to {time_text(newest)}"
    return f" · held back by {slowest.side} partition {partition}, {read}"
