"""Compares the results in the output topic with the expected ones. Pure.

It reports only what is certain: a result is missing only if its rows were certainly joined, and if
the query has certainly emitted it. All else is counted by the reason why it is not checked.
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from job.compare.span import Span
from job.explain.facts import RowId
from job.plan.plan import JoinPlan
from job.plan.result_id import Place
from job.spec.output import Delivery
from job.spec.sides import SIDES
from job.verify.absent import AbsentResults, OutputRead, starts_before_matches
from job.verify.comparison import Comparison, Difference, NotChecked, Shown
from job.verify.expected import Content, Expected, ResultId
from job.verify.joined import (
    CLOCKS_MS,
    InputsRead,
    JoinedRows,
    PartitionOffsets,
    Progress,
    is_before,
)
from job.verify.topics import WrittenResult


class Verification:
    def __init__(
        self,
        plan: JoinPlan,
        expected: Expected,
        span: Span,
        compacted: AbstractSet[str] = frozenset(),
        change: PartitionOffsets | None = None,
    ) -> None:
        """`span`: of the input records that were read. `compacted`: input topics of which Kafka may
        have removed any record. `change`: up to these offsets another query has read, before the
        last change of the join, or this query with other filters; None: neither has happened."""
        self._plan = plan
        self._expected = expected
        self._span = span
        self._compacted = compacted
        self._change = {} if change is None else change
        self._comparison = Comparison(
            allows_duplicates=plan.output.delivery is Delivery.AT_LEAST_ONCE
        )
        self._found: set[ResultId] = set()
        self._named: set[RowId] = set()
        """Rows in results that the specification gives."""
        self._matched: set[RowId] = set()
        """Rows in results with two records, also if one of them was not read."""
        self._alone: list[tuple[ResultId, WrittenResult, str | None]] = []
        """Results of one record, and how their contents differ."""

    def add(self, result: WrittenResult) -> None:
        if result.records is None:
            self._comparison.results_not_checked[NotChecked.WITHOUT_ID] += 1
            return
        result_id = result.records.get("left"), result.records.get("right")
        if result_id in self._found:
            self._differ(Difference.DUPLICATE, result_id, "another record has the id", result.at)
            if (difference := self._difference(result_id, result)) is not None:
                self._differ(Difference.DIFFERENT, result_id, difference, result.at)
            return
        rows = _rows(result_id)
        if not self._are_read(rows):
            self._comparison.results_not_checked[NotChecked.RECORD_NOT_READ] += 1
            self._add_matched(rows)
            return
        if self._is_before_change(rows):
            self._comparison.results_not_checked[NotChecked.BEFORE_CHANGE] += 1
            self._add_matched(rows)
            return
        self._found.add(result_id)
        if (problem := self._problem(rows, result_id)) is not None:
            self._differ(Difference.UNEXPLAINED, result_id, problem, result.at)
            return
        self._named |= set(rows)
        self._add_matched(rows)
        difference = self._difference(result_id, result)
        if len(rows) == 1:
            self._alone.append((result_id, result, difference))
        else:
            self._add_compared(result_id, result, difference)

    def compared(
        self, inputs: InputsRead, output: OutputRead, progress: Progress | None
    ) -> Comparison:
        """Call it once, after `add`. `progress`: None: the query has emitted all results."""
        joined = JoinedRows(self._plan, self._expected, inputs, self._named, progress)
        for result_id, result, difference in self._alone:
            checked = self._check_alone(result_id, result, inputs, joined)
            if checked is None:
                self._add_compared(result_id, result, difference)
            elif isinstance(checked, NotChecked):
                self._comparison.results_not_checked[checked] += 1
            else:
                self._differ(Difference.UNEXPLAINED, result_id, checked, result.at)
        absent = AbsentResults(self._plan, self._expected, inputs, output, progress, joined)
        for result_id, content in self._absent():
            rows = _rows(result_id)
            needed = [*rows, *self._expected.partners_of(rows[0])] if len(rows) == 1 else rows
            reason: NotChecked | None = NotChecked.BEFORE_CHANGE
            if not self._is_before_change(needed):
                reason = absent.check(rows, content)
            if reason is None:
                self._differ(Difference.MISSING, result_id, "the query has joined the rows")
            else:
                self._comparison.expected_not_checked[reason] += 1
        return self._comparison

    def _add_matched(self, rows: Sequence[RowId]) -> None:
        if len(rows) > 1:
            self._matched |= {row for row in rows if row in self._expected.rows}

    def _are_read(self, rows: Sequence[RowId]) -> bool:
        """Whether all records are in the span, and Kafka has not removed one of them."""
        for row in rows:
            is_known = row in self._expected.rows or row in self._expected.unreadable
            if not is_known and row[1].topic in self._compacted:
                return False
        return self._span.contains(place for _, place in rows)

    def _is_before_change(self, rows: Sequence[RowId]) -> bool:
        """Whether a row was read before the last change of the join or of its filters."""
        return any(is_before(self._change, row) for row in rows)

    def _problem(self, rows: Sequence[RowId], result_id: ResultId) -> str | None:
        """Why the specification does not give the result. None: it may give the result."""
        for row in rows:
            if (reason := self._not_joined(row)) is not None:
                return f"{row[0]} {row[1]} {reason}"
        join_type = self._plan.join_type
        if len(rows) == 1:
            [(side, _)] = rows
            if side not in {*join_type.outer_sides, join_type.semi_side}:
                return f"a {join_type} join emits no {side} row alone"
        elif len(join_type.shown_sides) == 1:
            return f"a {join_type} join emits no pairs"
        content = self._expected.results.get(result_id)
        if content is None:
            return "the rows do not match"
        return content if isinstance(content, str) else None

    def _not_joined(self, row: RowId) -> str | None:
        known = self._expected.rows.get(row)
        if known is None:
            return self._expected.unreadable.get(row, "is no record of the topic")
        return known.excluded

    def _difference(self, result_id: ResultId, result: WrittenResult) -> str | None:
        """None: key and value are the expected ones, or have a format that is not compared."""
        expected, output = self._expected.results.get(result_id), self._plan.output
        if not isinstance(expected, Content):
            return None  # The result itself is a difference.
        if output.key_schema is None and expected.key != result.key:
            return f"key {result.key} instead of {expected.key}"
        if output.schema is None and expected.value != result.value:
            return f"value {result.value} instead of {expected.value}"
        return None

    def _add_compared(
        self, result_id: ResultId, result: WrittenResult, difference: str | None
    ) -> None:
        if difference is None:
            self._comparison.agree += 1
            self._add_latency(result_id, result)
        else:
            self._differ(Difference.DIFFERENT, result_id, difference, result.at)

    def _add_latency(self, result_id: ResultId, result: WrittenResult) -> None:
        rows = _rows(result_id)
        written = [self._expected.rows[row].written_ms for row in rows]
        known = [ms for ms in written if ms is not None]
        if result.written_ms is not None and len(rows) == len(known) == len(SIDES):
            self._comparison.latencies_ms.append(result.written_ms - max(known))

    def _check_alone(
        self, result_id: ResultId, result: WrittenResult, inputs: InputsRead, joined: JoinedRows
    ) -> str | NotChecked | None:
        """None: the specification gives the result. A text: why it does not."""
        [row] = _rows(result_id)
        partners = self._expected.partners_of(row)
        if self._plan.join_type.semi_side is not None:
            if partners:
                return None
            return "no row matches" if self._read_matches(row, result, inputs) else _MATCH_NOT_READ
        if row in self._matched:
            return "the row is in another result with its match"
        if self._is_before_change(partners):
            return NotChecked.BEFORE_CHANGE
        for partner in partners:
            if partner in joined:
                return f"{partner[0]} {partner[1]} matches the row"
        if partners:
            return NotChecked.LATE_OR_DUPLICATE
        return None if self._read_matches(row, result, inputs) else _MATCH_NOT_READ

    def _read_matches(self, row: RowId, result: WrittenResult, inputs: InputsRead) -> bool:
        """Whether all records were read that can match the row, and that the query has read before
        it wrote the result."""
        known, until_ms = self._expected.rows[row], inputs.until_ms
        if not known.can_match:
            return True
        if until_ms is not None and (
            result.written_ms is None or result.written_ms + CLOCKS_MS > until_ms
        ):
            return False
        return starts_before_matches(self._plan, inputs, row[0], known)

    def _absent(self) -> Iterator[tuple[ResultId, Content]]:
        """Expected results that are not in the output."""
        is_semi = self._plan.join_type.semi_side is not None
        for result_id, content in self._expected.results.items():
            if isinstance(content, str) or result_id in self._found:
                continue
            rows = _rows(result_id)
            if len(rows) > 1:
                is_emitted = not is_semi
            else:
                [row] = rows
                partners = self._expected.partners_of(row)
                has_match = bool(partners) or row in self._matched
                is_emitted = has_match is is_semi and not any(
                    self._fails(row, each) for each in partners
                )
            if is_emitted:
                yield result_id, content

    def _fails(self, row: RowId, partner: RowId) -> bool:
        """Whether an expression fails on a pair, whose row a semi join does not emit."""
        places = dict((row, partner))
        pair = places.get("left"), places.get("right")
        return isinstance(self._expected.results[pair], str)

    def _differ(
        self, kind: Difference, result_id: ResultId, reason: str, at: Place | None = None
    ) -> None:
        text = "|".join("" if place is None else str(place) for place in result_id)
        self._comparison.add(kind, Shown(text, reason, at))


_MATCH_NOT_READ = NotChecked.MATCH_NOT_READ


def _rows(result_id: ResultId) -> list[RowId]:
    pairs = zip(SIDES, result_id, strict=True)
    return [(side, place) for side, place in pairs if place is not None]
