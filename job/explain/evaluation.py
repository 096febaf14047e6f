"""Reads the records of a key with Spark's expressions, and compares them in pairs.

The readers, the condition and the output are those of the executable specification
(job/semantics).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from job.event_time.filters import EarlierFilters
from job.explain.earlier import Decided, EarlierJudgement, without_changed_filters
from job.explain.facts import (
    Bad,
    Filtered,
    KeyRecord,
    NoMatchPossible,
    NullKey,
    Pair,
    Problem,
)
from job.plan.plan import JoinPlan
from job.plan.result_id import Place
from job.plan.side_plan import SidePlan
from job.semantics.input_records import InputRecord
from job.semantics.rows import MICROS_PER_MS, JoinedRow, joined
from job.semantics.simulated_output import SimulatedOutput
from job.semantics.simulated_pairs import PairCondition
from job.semantics.simulated_side import BadRecord, DecodedRow, OtherRecord, SideReader
from job.semantics.topic_records import TopicRecords
from job.spec.durations import milliseconds
from job.spec.sides import OTHER_SIDE, SIDES, Side
from job.sql.rows import EvaluationError, SqlRows

_COMMA = ", ',', "
_Read = DecodedRow | BadRecord | OtherRecord


@dataclass(frozen=True)
class Evaluated:
    records: tuple[KeyRecord, ...]
    pairs: Mapping[tuple[Place, Place], Pair]


class KeyEvaluation:
    """Selects and compares the records of one key. Raises EvaluationError if the query would fail
    on them."""

    def __init__(
        self,
        plan: JoinPlan,
        rows: SqlRows,
        key: Sequence[str],
        topics: TopicRecords | None = None,
        earlier: Sequence[EarlierFilters] = (),
    ) -> None:
        """`key`: the text of its parts. `topics`: as of SideReader. `earlier`: oldest first."""
        self.unreadable: dict[Side, list[tuple[Place, Bad]]] = {side: [] for side in SIDES}
        """Bad records among those that `select` has read, whose key cannot be read."""
        self._topics = topics
        self._earlier = earlier
        self._plan = plan
        self._read_with = without_changed_filters(plan, earlier)
        self._rows = rows
        self._record_key = key[0] if len(key) == 1 else None
        self._texts = {side: self._text(plan.side(side), key) for side in SIDES}

    def select(self, side: Side, records: Sequence[InputRecord]) -> list[InputRecord]:
        """The records with the key. A record whose value has no key is selected by the key of the
        Kafka record."""
        selected = list[InputRecord]()
        reader, of_side = self._reader(side), self._plan.side(side)
        with closing(reader):
            for record, each in zip(records, reader.read(records), strict=True):
                if self._has_key(side, each):
                    selected.append(record)
                elif isinstance(each, BadRecord) and _has_no_key(each):
                    bad = Bad(each.reason, each.message)
                    self.unreadable[side].append((place_of(of_side, record), bad))
        return selected

    def evaluated(self, records: Mapping[Side, Sequence[InputRecord]]) -> Evaluated:
        """`records`: those of the key."""
        left, right = (self._reader(side) for side in SIDES)
        with closing(left), closing(right):
            read: dict[Side, list[_Read]] = {
                side: list(reader.read(records[side]))
                for side, reader in zip(SIDES, (left, right), strict=True)
            }
            return self._evaluated(read, (left, right))

    def _reader(self, side: Side) -> SideReader:
        return SideReader(self._read_with, side, self._rows, explains=True, topics=self._topics)

    def _evaluated(
        self, read: Mapping[Side, Sequence[_Read]], readers: tuple[SideReader, SideReader]
    ) -> Evaluated:
        output = SimulatedOutput(self._plan, readers, self._rows)
        known = {id(each): self._record(side, each) for side in SIDES for each in read[side]}
        earlier = EarlierJudgement(self._plan, self._rows, readers, self._earlier)
        for side in SIDES:
            decoded = [
                (each, known[id(each)]) for each in read[side] if isinstance(each, DecodedRow)
            ]
            for row, filtered in earlier.of_side(side, decoded):
                problem = self._problem(self._plan.side(side), row, filtered)
                known[id(row)] = replace(known[id(row)], problem=problem)
        rows: dict[Side, list[DecodedRow]] = {
            side: [
                each
                for each in read[side]
                if isinstance(each, DecodedRow) and known[id(each)].problem is None
            ]
            for side in SIDES
        }
        entering = [row for side in SIDES for row in rows[side]]
        alone = [joined(side, row, None) for side in SIDES for row in rows[side]]
        facts = zip(output.results(alone), output.has_null_filter(alone), strict=True)
        for row, (result, is_null) in zip(entering, facts, strict=True):
            decided = earlier.of_unmatched(row, known[id(row)])
            if decided is None:
                decided = Decided(result is not None, is_null, None)
            known[id(row)] = replace(
                known[id(row)],
                passes_alone=decided.passes,
                alone_filter_is_null=decided.is_null,
                alone_earlier_filter=decided.text,
            )
        for side in SIDES:
            for row, original in _duplicates(self._plan, side, rows[side]):
                place = known[id(original)].place
                known[id(row)] = replace(known[id(row)], duplicate_of=place)
        pairs = {
            (known[id(left)].place, known[id(right)].place): pair
            for left, right, pair in self._pairs(rows, readers, output, earlier)
        }
        return Evaluated(tuple(known.values()), pairs)

    def _pairs(
        self,
        rows: Mapping[Side, Sequence[DecodedRow]],
        readers: tuple[SideReader, SideReader],
        output: SimulatedOutput,
        earlier: EarlierJudgement,
    ) -> Iterator[tuple[DecodedRow, DecodedRow, Pair]]:
        condition = PairCondition(self._plan, readers, self._rows)
        both = [
            (left, right)
            for left in rows["left"]
            for right in rows["right"]
            if left.key == right.key
        ]
        condition.prepare(both)
        matching = [row for row in map(JoinedRow._make, both) if condition.is_met(row)]
        keys = [(id(row.left), id(row.right)) for row in matching]
        results = dict(zip(keys, output.results(matching), strict=True))
        nulls = dict(zip(keys, output.has_null_filter(matching), strict=True))
        for left, right in both:
            is_met = (id(left), id(right)) in results
            result = results.get((id(left), id(right)))
            decided = earlier.of_pair(left, right) if is_met else None
            if decided is None:
                is_null = nulls.get((id(left), id(right)), False)
                decided = Decided(result is not None, is_null, None)
            yield (
                left,
                right,
                Pair(
                    distance_ms=(right.event_time_us - left.event_time_us) // MICROS_PER_MS,
                    is_in_window=self._is_in_window(left, right, condition),
                    meets_condition=is_met,
                    passes_filter=decided.passes,
                    failed_field=None if result is None else result.failed_field,
                    filter_is_null=decided.is_null,
                    earlier_filter=decided.text,
                ),
            )

    def _is_in_window(self, left: DecodedRow, right: DecodedRow, condition: PairCondition) -> bool:
        if self._plan.window is not None:
            return left.late_time_us == right.late_time_us
        return condition.is_in_window(left, right)

    def _record(self, side: Side, read: _Read) -> KeyRecord:
        record, plan = read.record, self._plan.side(side)
        row = read if isinstance(read, DecodedRow) else None
        return KeyRecord(
            side=side,
            place=place_of(plan, record),
            partition=record.partition_of_side,
            written_ms=_ms(record.timestamp_us),
            event_time_ms=_ms(None if row is None else row.event_time_us),
            late_time_ms=_ms(None if row is None else row.late_time_us),
            problem=self._problem(plan, read),
            deletes_key=row is not None and row.deletes_key,
        )

    def _problem(
        self, side: SidePlan, read: _Read, earlier: Decided | None = None
    ) -> Problem | None:
        """`earlier`: what the filter of the side decided when the record was read. None: it has
        not changed, or there is none."""
        if isinstance(read, BadRecord):
            return Bad(read.reason, read.message)
        if isinstance(read, OtherRecord):
            return Filtered(_filter_text(side, read.record))
        if earlier is not None and not earlier.passes:
            return Filtered(earlier.text or "", earlier.is_null)
        if not read.passes_filter:
            is_null = read.filter_is_null and not _is_dropped_tombstone(side, read.record)
            return Filtered(_filter_text(side, read.record), is_null)
        if read.has_null_key or read.has_unequal_null:
            return NullKey()
        if not read.passes_mirrored:
            texts = [part.text for part in side.mirrored]
            other = OTHER_SIDE[side.side]
            return Filtered(f"{' AND '.join(texts)}, which follows from {other}.filter")
        parts = self._plan.condition.conjuncts if self._plan.condition else ()
        if not read.passes_one_sided:
            texts = [part.text for part in parts if part.sides <= {side.side}]
            return NoMatchPossible(" AND ".join(texts))
        return None

    def _has_key(self, side: Side, read: _Read) -> bool:
        if read.key_text == self._texts[side]:
            return True
        has_record_key = self._record_key is not None and read.record.key == self._record_key
        return has_record_key and _has_no_key(read)

    def _text(self, side: SidePlan, key: Sequence[str]) -> str:
        """The key as the reader shows it, whatever its spelling: `07` is the BIGINT 7."""
        names = [f"key_{index}" for index in range(len(key))]
        cast = [
            f"coalesce(cast(try_cast({name} AS {part.type}) AS STRING), {name})"
            for name, part in zip(names, side.key, strict=True)
        ]
        text = f"concat({_COMMA.join(cast)}) AS text"
        store = self._rows.store()
        try:
            ddl = ", ".join(f"{name} STRING" for name in names)
            program = self._rows.program(ddl, [[text]], ["text"])
            [answer] = self._rows.run(program, [list(key)], keep_in=store)
        except EvaluationError:  # a type that no text can be cast to
            return ",".join(key)
        finally:
            self._rows.drop(store)
        return str(answer["text"])


def _has_no_key(read: _Read) -> bool:
    """Whether a part of the key is null or cannot be read."""
    return read.key_text is None or "null" in read.key_text.split(",")


def place_of(side: SidePlan, record: InputRecord) -> Place:
    topic = side.topics.names[0] if record.topic is None else record.topic
    return Place(topic, record.partition, record.offset)


def _is_dropped_tombstone(side: SidePlan, record: InputRecord) -> bool:
    return record.value is None and side.drops_tombstones


def _filter_text(side: SidePlan, record: InputRecord) -> str:
    if _is_dropped_tombstone(side, record):
        return f"{side.side}.on_tombstone: drop, because it has no value"
    if side.filter is None:
        return f"{side.side}.operations"
    return f"{side.side}.filter ({side.filter.text})"


def _duplicates(
    plan: JoinPlan, side: Side, rows: Sequence[DecodedRow]
) -> Iterator[tuple[DecodedRow, DecodedRow]]:
    """Rows with key and id of an earlier row, and this row."""
    deduplication = plan.side(side).deduplication
    if deduplication is None:
        return
    within_us = milliseconds(deduplication.within) * MICROS_PER_MS
    originals: dict[object, list[DecodedRow]] = {}
    for row in sorted(rows, key=lambda each: (each.record.timestamp_us or 0, each.record.offset)):
        if not row.row_id:
            continue
        window = None if plan.window is None else row.late_time_us
        same = originals.setdefault((row.key, row.row_id, window), [])
        near = (each for each in same if abs(each.event_time_us - row.event_time_us) <= within_us)
        original = next(near, None)
        if original is None:
            same.append(row)
        else:
            yield row, original


def _ms(us: int | None) -> int | None:
    return None if us is None else us // MICROS_PER_MS
