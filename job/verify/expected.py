"""The results that the executable specification (job/semantics) gives for records of both topics if
no row is late.

Each pair of rows that match has a result, and each row has the one with which it is emitted alone:
as unmatched, or in a semi join.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from job.errors import StreamjoinError
from job.explain.evaluation import place_of
from job.explain.facts import RowId
from job.plan.plan import JoinPlan
from job.plan.result_id import Place
from job.semantics.input_records import InputRecord
from job.semantics.rows import JoinedRow, Key, joined
from job.semantics.simulated_pairs import bounds_us
from job.semantics.simulated_side import BadRecord, DecodedRow, OtherRecord
from job.semantics.simulation_plan import SimulatedSide, SimulationPlan, simulation_plan
from job.semantics.topic_records import TopicRecords
from job.spec.sides import SIDES, Side
from job.sql.rows import EvaluationError, SqlRows

_RECORDS_AT_ONCE = 2_000
_PAIRS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Content:
    """Of an output record."""

    key: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class InputRow:
    """A readable record."""

    event_time_us: int
    late_time_us: int
    """The event time, or the end of the tumbling window: it decides whether the row is late."""
    written_ms: int | None
    """Kafka's timestamp."""
    excluded: str | None
    """Why the row does not enter the join. None: it enters."""
    can_match: bool
    """False: it is emitted alone at once."""
    may_be_duplicate: bool
    """Whether `deduplicate` may drop it."""


ResultId: TypeAlias = tuple[Place | None, Place | None]
"""The left and the right record of a result."""


@dataclass
class Expected:
    rows: dict[RowId, InputRow] = field(default_factory=dict)
    unreadable: dict[RowId, str] = field(default_factory=dict)
    """Why a record is no row."""
    partners: dict[RowId, list[RowId]] = field(default_factory=dict)
    """The rows that match a row."""
    results: dict[ResultId, Content | str] = field(default_factory=dict)
    """The content of each result, or why there is none."""

    def partners_of(self, row: RowId) -> Sequence[RowId]:
        return self.partners.get(row, ())


def expected_results(
    plan: JoinPlan,
    rows: SqlRows,
    topics: TopicRecords,
    records: Mapping[Side, Sequence[InputRecord]],
) -> Expected:
    """Raises StreamjoinError if the query would fail on the records, or if too many rows match;
    RegistryError or SecurityError if the registry is needed and does not answer."""
    # The idle timeout decides only when rows are late.
    unlimited = plan.with_sides(lambda side: replace(side, idle_after=None))
    try:
        with closing(simulation_plan(unlimited, rows, topics=topics)) as specification:
            return _Evaluation(specification).expected(records)
    except EvaluationError as error:
        raise StreamjoinError(f"the query would fail on these records: {error}") from error


class _Evaluation:
    def __init__(self, specification: SimulationPlan) -> None:
        self._specification = specification
        self._plan = specification.join
        self._expected = Expected()

    def expected(self, records: Mapping[Side, Sequence[InputRecord]]) -> Expected:
        entering = {side: list(self._entering(side, records[side])) for side in SIDES}
        alone = {*self._plan.join_type.outer_sides, self._plan.join_type.semi_side}
        for side in SIDES:
            if side in alone:
                self._add_results([joined(side, row, None) for row in entering[side]])
        self._add_pairs(entering)
        return self._expected

    def _entering(self, side: Side, records: Sequence[InputRecord]) -> Iterator[DecodedRow]:
        """Adds the rows of a side. Yields those that enter the join."""
        reader = self._specification.side(side).reader
        for start in range(0, len(records), _RECORDS_AT_ONCE):
            for row in reader.read(records[start : start + _RECORDS_AT_ONCE]):
                row_id = self._row_id(side, row)
                if isinstance(row, BadRecord):
                    self._expected.unreadable[row_id] = f"is a bad record ({row.reason})"
                elif isinstance(row, OtherRecord):
                    self._expected.unreadable[row_id] = _filtered(side)
                else:
                    known = self._input_row(side, row)
                    self._expected.rows[row_id] = known
                    if known.excluded is None:
                        yield row

    def _input_row(self, side: Side, row: DecodedRow) -> InputRow:
        at_us = row.record.timestamp_us
        return InputRow(
            event_time_us=row.event_time_us,
            late_time_us=row.late_time_us,
            written_ms=None if at_us is None else at_us // 1000,
            excluded=_excluded(self._specification.side(side), side, row),
            can_match=self._specification.operator.of(side).pre_join_filter(row),
            may_be_duplicate=bool(row.row_id),
        )

    def _add_pairs(self, entering: Mapping[Side, Sequence[DecodedRow]]) -> None:
        possible: list[tuple[DecodedRow, DecodedRow]] = []
        for pair in self._possible_pairs(entering):
            if len(possible) == _PAIRS_MAX:
                raise StreamjoinError(
                    f"more than {_PAIRS_MAX:,} pairs of these records have the same key and are in "
                    "the window: choose a shorter time with --since and --until"
                )
            possible.append(pair)
        condition = self._specification.pairs
        condition.prepare(possible)
        matching = [row for row in map(JoinedRow._make, possible) if condition.is_met(row)]
        for row in matching:
            left, right = self._row_id("left", row.left), self._row_id("right", row.right)
            self._expected.partners.setdefault(left, []).append(right)
            self._expected.partners.setdefault(right, []).append(left)
        if self._plan.join_type.anti_side is None:
            self._add_results(matching)

    def _possible_pairs(
        self, entering: Mapping[Side, Sequence[DecodedRow]]
    ) -> Iterator[tuple[DecodedRow, DecodedRow]]:
        """Pairs of equal keys in the window."""
        earliest_us, latest_us = bounds_us(self._plan.match_window)
        rights: dict[Key, list[DecodedRow]] = {}
        for key, row in self._by_key("right", entering["right"]):
            rights.setdefault(key, []).append(row)
        for of_key in rights.values():
            of_key.sort(key=_time)
        for key, left in self._by_key("left", entering["left"]):
            others = rights.get(key, [])
            time_us, start, end = left.event_time_us, 0, len(others)
            if earliest_us is not None:
                start = bisect_left(others, time_us + earliest_us, key=_time)
            if latest_us is not None:
                end = bisect_right(others, time_us + latest_us, key=_time)
            yield from ((left, right) for right in others[start:end])

    def _by_key(self, side: Side, rows: Sequence[DecodedRow]) -> Iterator[tuple[Key, DecodedRow]]:
        """The rows that can match."""
        of_side = self._specification.operator.of(side)
        yield from ((of_side.key(row), row) for row in rows if of_side.pre_join_filter(row))

    def _add_results(self, rows: Sequence[JoinedRow]) -> None:
        for row, result in zip(rows, self._specification.output.results(rows), strict=True):
            content: Content | str
            if result is None:
                content = "output.filter is not true"
            elif result.failed_field is not None:
                content = f"{result.failed_field} cannot be evaluated"
            else:
                content = Content(result.key, result.value)
            self._expected.results[self._result_id(row)] = content

    def _result_id(self, row: JoinedRow) -> ResultId:
        left, right = (
            None if each is None else self._row_id(side, each)[1]
            for side, each in zip(SIDES, row, strict=True)
        )
        return left, right

    def _row_id(self, side: Side, row: object) -> RowId:
        assert isinstance(row, DecodedRow | BadRecord | OtherRecord)
        return side, place_of(self._plan.side(side), row.record)


def _excluded(simulated: SimulatedSide, side: Side, row: DecodedRow) -> str | None:
    if not row.passes_filter:
        return _filtered(side)
    if simulated.passes_job_filters(row) and simulated.enters_join(row):
        return None
    if row.has_null_key or row.has_unequal_null:
        return "has a null in its key"
    return "matches no row, because a condition on its side is false"


def _filtered(side: Side) -> str:
    return f"does not pass {side}.filter"


def _time(row: DecodedRow) -> int:
    return row.event_time_us
