"""Text of a simulation: batch by batch, or the trace of one key."""

from collections import Counter
from collections.abc import Iterator, Sequence

from job.instants import from_epoch_ms, utc_text
from job.plan.plan import JoinPlan
from job.plan.record_checks import EXPRESSION_FAILED
from job.protocol.reasons import REASONS
from job.semantics import events
from job.semantics.input_records import InputRecord
from job.semantics.rows import Row, other
from job.semantics.simulate import FailedResult, SimulatedBatch
from job.semantics.simulated_side import DecodedRow
from job.spec.sides import SIDES, Side

DROPPED = "dropped"


def batch_lines(plan: JoinPlan, batches: Sequence[SimulatedBatch]) -> Iterator[str]:
    """Input and output of each batch, and the reasons of records that did not enter the join."""
    for batch in batches:
        watermark = time_text(batch.watermarks.eviction)
        yield f"batch {batch.batch_id} · watermark {watermark}{held_back_text(plan, batch, ' · ')}"
        for side in SIDES:
            yield f"  {side}: {batch.records[side]} records, {batch.state_rows[side]} in state"
        drops = Counter((drop.side, drop.reason, drop.field or "") for drop in batch.drops)
        for (side, reason, field), count in sorted(drops.items()):
            same = (side, reason, field)
            places = [
                place(d.record) for d in batch.drops if (d.side, d.reason, d.field or "") == same
            ]
            shown = ", ".join(places[:5]) + (", …" if count > 5 else "")
            detail = f"{reason} in {field}" if field else reason
            yield f"  {side}: {count} {outcome(plan, reason)}, {detail} ({shown})"
        for failed in batch.failed_results:
            yield f"  output: 1 {failed_text(plan, failed)}"
        yield f"  {len(batch.output)} out"
        yield from (f"    {record.value}" for record in batch.output)


def trace_lines(plan: JoinPlan, batches: Sequence[SimulatedBatch], key: str) -> Iterator[str]:
    """All steps of the records with `key`: its parts as text, joined by commas."""
    keys = {(side, place(record)): text for b in batches for side, record, text in b.keys}
    has_key = False
    for batch in batches:
        for side, record, text in _trace_events(plan, batch):
            if keys.get((side, place(record))) == key:
                has_key = True
                watermark = time_text(batch.watermarks.eviction) + held_back_text(plan, batch, ", ")
                batch_text = f"batch {batch.batch_id} (watermark {watermark})"
                yield f"{batch_text} {side} {place(record)}: {text}"
    if not has_key:
        yield f"no record has the key {key}"


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


def _trace_events(plan: JoinPlan, batch: SimulatedBatch) -> Iterator[tuple[Side, InputRecord, str]]:
    for drop in batch.drops:
        if drop.reason != "late":  # the trace contains late rows, with the watermark
            detail = f"{drop.reason} in {drop.field}" if drop.field else drop.reason
            yield drop.side, drop.record, f"{outcome(plan, drop.reason)}: {detail}"
    for failed in batch.failed_results:
        for side, record in zip(SIDES, (failed.left, failed.right), strict=True):
            if record is not None:
                yield side, record, f"a result {failed_text(plan, failed)}"
    for event in batch.join_events:
        yield event.side, _record(event.row), _what(event)
        if isinstance(event, events.Matched):
            text = f"matched by {event.side} record {place(_record(event.row))}"
            yield other(event.side), _record(event.stored), text


def _record(row: Row) -> InputRecord:
    assert isinstance(row, DecodedRow)
    return row.record


def _what(event: events.OfJoin) -> str:
    match event:
        case events.Late():
            return f"dropped: late, the watermark had reached {time_text(event.watermark_ms)}"
        case events.FailedPreJoinFilter():
            text = "fails its side's part of join.condition"
            return f"{text}: emitted unmatched at once" if event.null_padded else text
        case events.Matched():
            return f"matched the stored record {place(_record(event.stored))}"
        case events.Stored():
            return "stored" + (", marked as matched" if event.matched else "")
        case events.NotStored():
            return f"not stored: {event.reason}"
        case events.RemovedByMatch():
            return "removed from state: a semi join needs one match"
        case events.Evicted():
            text = f"evicted: the state watermark ({event.predicate.on}) has reached "
            text += time_text(event.predicate.watermark_ms)
            return f"{text}; emitted unmatched" if event.null_padded else text


def held_back_text(plan: JoinPlan, batch: SimulatedBatch, separator: str) -> str:
    """The partition whose backlog holds back the watermark of `batch`; empty if none does."""
    slowest = batch.held_back_by
    if slowest is None:
        return ""
    partition = plan.side(slowest.side).topics.label(slowest.partition)
    newest = slowest.newest_ms
    read = "no event time read yet" if newest is None else f"read to {time_text(newest)}"
    return f"{separator}held back by {slowest.side} partition {partition}, {read}"


def time_text(watermark_ms: int) -> str:
    return utc_text(from_epoch_ms(watermark_ms))
