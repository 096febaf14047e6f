"""The explanation of a key of a running join: the facts of topics, state and watermark history,
and their sentences. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from job.dead_letters.sql import late_watermark
from job.event_time.history import Bounds, Pace, WatermarkLine, pace, stands, watermarks_at_read
from job.explain.cause_types import Cause, Waiting
from job.explain.causes import causes
from job.explain.evaluation import Evaluated
from job.explain.facts import Facts, KeyRecord, Result, RowId, Skipped, StoredRow
from job.explain.read_sentences import read_sentences
from job.explain.sentences import sentence
from job.explain.topics import KeyTopics
from job.instants import time_text, to_epoch_ms
from job.plan.plan import JoinPlan
from job.plan.result_id import Place
from job.protocol.progress import BatchProgress
from job.protocol.results import KeyRows, StateRow
from job.spec.sides import SIDES, Side


@dataclass(frozen=True)
class RunningFacts:
    """What the job knows about a key."""

    plan: JoinPlan
    """With the topics of the running query."""
    watermark_ms: int | None
    state: Mapping[Side, KeyRows]
    topics: KeyTopics
    evaluated: Evaluated
    cut: Mapping[Side, Mapping[int, int]] | None
    """Offsets up to which the query before the last change has read, by the number of the
    partition. None: there was no change."""
    reset_ms: int | None
    """Time of the last reset. None: there was none."""
    history: Sequence[WatermarkLine]
    """The last line is the present one. It is older than the state: a record before its offsets was
    read by a batch of this state."""
    is_running: bool
    """False: the query is paused, so the watermark does not advance."""
    batches: Sequence[BatchProgress]
    """The last batches, oldest first."""
    skipped: Sequence[Skipped] = ()
    """Since the time from which the topics were read."""

    @property
    def present(self) -> WatermarkLine:
        return self.history[-1]


@dataclass(frozen=True)
class Explained:
    records: list[str]
    """A sentence for each record of the key."""
    read: list[str]
    """How far the topics were read."""
    waits: bool
    """Whether a row waits for the watermark."""


def explained_key(running: RunningFacts) -> Explained:
    facts = _facts(running)
    found = list(causes(facts))
    return Explained(
        list(_records(facts, found)),
        [
            *_left_out(running.topics),
            *_skipped(running.skipped),
            *read_sentences(running.topics.read),
        ],
        any(isinstance(cause, Waiting) for _, cause in found),
    )


def known_rows(state: Mapping[Side, KeyRows]) -> dict[RowId, StateRow]:
    """The rows in state whose position the join stores."""
    return {
        (side, Place(row.topic, row.partition, row.offset)): row
        for side in SIDES
        for row in state[side].rows
        if row.partition is not None and row.offset is not None
    }


def _facts(running: RunningFacts) -> Facts:
    stored, topics = known_rows(running.state), running.topics
    records = {record.row: record for record in running.evaluated.records}
    # Retention may have removed records that other facts name.
    for row in (*stored, *topics.named):
        if row not in records:
            records[row] = _record(running.plan, row, stored.get(row))
    ordered = tuple(sorted(records.values(), key=lambda record: (record.side, record.place)))
    return Facts(
        plan=running.plan,
        records=ordered,
        pairs=running.evaluated.pairs,
        results=tuple(_of_these(topics.results, records, running.reset_ms)),
        letters=topics.letters,
        result_letters=topics.result_letters,
        stored={row: _stored(of_row) for row, of_row in stored.items()},
        stored_is_known={
            side: not rows.more and all(row.partition is not None for row in rows.rows)
            for side, rows in running.state.items()
        },
        # The state may be that of a later batch than `present`.
        unread=dict(_unread(running.present, [each for each in ordered if each.row not in stored])),
        watermarks=dict(_watermarks(running, ordered)),
        watermark_ms=running.watermark_ms,
        pace=_pace(running),
        output=topics.output,
        before_change=frozenset(_before(running.cut, ordered)),
        reset_ms=running.reset_ms,
        history_from_ms=running.history[0].at_ms if len(running.history) > 1 else None,
    )


def _of_these(
    results: Sequence[Result], records: Mapping[RowId, KeyRecord], reset_ms: int | None
) -> Iterator[Result]:
    """Without those of before a reset whose records were written after it: a topic that was created
    again has the same places."""

    def is_older(result: Result) -> bool:
        if reset_ms is None or result.written_ms is None or result.written_ms >= reset_ms:
            return False
        known = (records[row] for row in result.records.items() if row in records)
        return any((record.written_ms or 0) >= reset_ms for record in known)

    yield from (result for result in results if not is_older(result))


def _pace(running: RunningFacts) -> Pace | None:
    now_ms, watermark_ms = running.present.at_ms, running.watermark_ms
    batches = [
        (to_epoch_ms(batch.started_at), round(batch.duration_seconds * 1000), batch.watermark_ms)
        for batch in running.batches
    ]
    if watermark_ms is not None and (not running.is_running or stands(batches, now_ms)):
        return Pace(now_ms, watermark_ms, 0.0)
    lines = _after_replay(running)
    return pace(lines, now_ms, watermark_ms)


def _record(plan: JoinPlan, row: RowId, stored: StateRow | None) -> KeyRecord:
    """A record that was not read, from the other facts about it."""
    side, place = row
    at = None if stored is None or stored.event_time is None else to_epoch_ms(stored.event_time)
    number = plan.side(side).topics.number(place.topic, place.partition)
    return KeyRecord(side, place, number, None, at, at)


def _stored(row: StateRow) -> StoredRow:
    leaves = None if row.leaves_after is None else to_epoch_ms(row.leaves_after)
    return StoredRow(leaves, row.matched)


def _after_replay(running: RunningFacts) -> list[WatermarkLine]:
    """The earlier lines without those of the replay, whose pace is that of the reading."""
    cut = running.cut or {}
    return [
        line
        for line in running.history[:-1]
        if all(
            line.offsets(side).get(partition, 0) >= end
            for side, ends in cut.items()
            for partition, end in ends.items()
        )
    ]


def _unread(present: WatermarkLine, records: Sequence[KeyRecord]) -> Iterator[tuple[RowId, int]]:
    for record in records:
        next_offset = present.offsets(record.side).get(record.partition, 0)
        if record.place.offset >= next_offset:
            yield record.row, record.place.offset - next_offset


def _before(
    cut: Mapping[Side, Mapping[int, int]] | None, records: Sequence[KeyRecord]
) -> Iterator[RowId]:
    for record in records:
        if cut is not None and record.place.offset < cut[record.side].get(record.partition, 0):
            yield record.row


def _watermarks(
    running: RunningFacts, records: Sequence[KeyRecord]
) -> Iterator[tuple[RowId, Bounds]]:
    for record in records:
        letter = running.topics.letters.get(record.row)
        exact = None if letter is None else late_watermark(letter.message)
        if exact is not None:
            yield record.row, Bounds(to_epoch_ms(exact), to_epoch_ms(exact))
            continue
        place = (record.side, record.partition, record.place.offset)
        if (bounds := watermarks_at_read(running.history, *place)) is not None:
            yield record.row, bounds


def _records(facts: Facts, found: Sequence[tuple[KeyRecord, Cause]]) -> Iterator[str]:
    if not found:
        yield (
            "No record with this key is in what was read of the topics, and none is in state. To "
            "read earlier records, give an earlier time: `--since` of the command, `since` over "
            "HTTP."
        )
    for record, cause in found:
        yield sentence(facts, record, cause)


def _left_out(topics: KeyTopics) -> Iterator[str]:
    for side, count in topics.left_out.items():
        if count:
            yield (
                f"{count:,} older {side} records with this key are left out: increase `limit` of "
                "the call over HTTP."
            )
    for side, count in topics.not_named.items():
        if count:
            yield (
                f"{count:,} more {side} records, which only results or dead letters name, are left "
                "out: increase `limit` of the call over HTTP."
            )


def _skipped(ranges: Sequence[Skipped]) -> Iterator[str]:
    for each in ranges:
        records = "1 record" if each.count == 1 else f"{each.count:,} records"
        yield (
            f"Kafka deleted {records} from {each.side} {each.first} on before the query read "
            f"them, and `streamjoin checkpoint skip-gap` skipped them at {time_text(each.at_ms)}: "
            "a record with this key may be among them."
        )
