"""Whether an expected result that is not in the output is certainly missing. Pure."""

from dataclasses import dataclass

from job.explain.causes import leaves_after_ms
from job.explain.facts import RowId
from job.plan.plan import JoinPlan
from job.semantics.rows import MICROS_PER_MS
from job.semantics.simulated_pairs import bounds_us
from job.spec.durations import milliseconds
from job.spec.sides import OTHER_SIDE, Side
from job.verify.comparison import NotChecked
from job.verify.expected import Content, Expected, InputRow
from job.verify.joined import CLOCKS_MS, InputsRead, JoinedRows, Progress


@dataclass(frozen=True)
class OutputRead:
    complete_from_ms: int | None
    """The output has all results of records with this timestamp or a later one. None: of all
    records."""
    may_lack_any: bool
    """Whether Kafka may have removed any result."""
    bytes_max: int
    """The largest record that the topic accepts."""


class AbsentResults:
    def __init__(
        self,
        plan: JoinPlan,
        expected: Expected,
        inputs: InputsRead,
        output: OutputRead,
        progress: Progress | None,
        joined: JoinedRows,
    ) -> None:
        """`progress`: None: the query has emitted all results."""
        self._plan = plan
        self._expected = expected
        self._inputs = inputs
        self._output = output
        self._progress = progress
        self._joined = joined

    def check(self, rows: list[RowId], content: Content) -> NotChecked | None:
        """None: the result of these rows is missing."""
        if len(rows) > 1:
            return self._of_pair(rows, content)
        is_semi = self._plan.join_type.semi_side is not None
        return (self._of_matched if is_semi else self._of_unmatched)(rows[0], content)

    def _of_pair(self, rows: list[RowId], content: Content) -> NotChecked | None:
        if not all(map(self._has_read, rows)):
            return NotChecked.NOT_EMITTED_YET
        return self._certain(rows, content)

    def _of_matched(self, row: RowId, content: Content) -> NotChecked | None:
        partners = [each for each in self._expected.partners_of(row) if self._has_read(each)]
        if not partners or not self._has_read(row):
            return NotChecked.NOT_EMITTED_YET
        joined = [each for each in partners if each in self._joined]
        return self._certain([row, *(joined or partners)[:1]], content)

    def _of_unmatched(self, row: RowId, content: Content) -> NotChecked | None:
        known = self._expected.rows[row]
        if not self._has_read(row) or (known.can_match and not self._has_expired(row[0], known)):
            return NotChecked.NOT_EMITTED_YET
        are_read = self._inputs.until_ms is None and starts_before_matches(
            self._plan, self._inputs, row[0], known
        )
        if known.can_match and not are_read:
            return NotChecked.MATCH_NOT_READ
        return self._certain([row], content)

    def _certain(self, rows: list[RowId], content: Content) -> NotChecked | None:
        if not all(row in self._joined for row in rows):
            return NotChecked.LATE_OR_DUPLICATE
        if not self._is_kept(rows):
            return NotChecked.MAY_BE_REMOVED
        size = sum(len(text.encode()) for text in (content.key, content.value) if text is not None)
        # The topic may hold the value in another format, and counts the headers too.
        return NotChecked.MAY_BE_TOO_LARGE if size > self._output.bytes_max // 2 else None

    def _is_kept(self, rows: list[RowId]) -> bool:
        from_ms = self._output.complete_from_ms
        if self._output.may_lack_any:
            return False
        times = [self._expected.rows[row].written_ms for row in rows]
        return from_ms is None or any(ms is not None and ms > from_ms + CLOCKS_MS for ms in times)

    def _has_read(self, row: RowId) -> bool:
        return self._progress is None or self._progress.has_read(row)

    def _has_expired(self, side: Side, row: InputRow) -> bool:
        if self._progress is None:
            return True
        late_ms = row.late_time_us // MICROS_PER_MS + 1
        after_ms = leaves_after_ms(self._plan, side, late_ms)
        watermark_ms = self._progress.watermark_ms
        return watermark_ms is not None and after_ms is not None and watermark_ms > after_ms


def starts_before_matches(plan: JoinPlan, inputs: InputsRead, side: Side, row: InputRow) -> bool:
    """Whether every record before those that were read is too old to match the row."""
    known_ms = inputs.known_from_ms[OTHER_SIDE[side]]
    if known_ms is None:
        return True
    earliest_us = _earliest_match_us(plan, side, row)
    return earliest_us is not None and earliest_us > known_ms * MICROS_PER_MS + MICROS_PER_MS


def _earliest_match_us(plan: JoinPlan, side: Side, row: InputRow) -> int | None:
    """None: a match may have any earlier event time."""
    if plan.window is not None:
        # A calendar day may be longer than the size.
        return row.late_time_us - 2 * milliseconds(plan.window.size) * MICROS_PER_MS
    if plan.event_time_in_key:
        return row.event_time_us
    earliest_us, latest_us = bounds_us(plan.match_window)
    if side == "left":
        return None if earliest_us is None else row.event_time_us + earliest_us
    return None if latest_us is None else row.event_time_us - latest_us
