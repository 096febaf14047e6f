"""Why a row has not come out: the answer in words, from what is known. Pure.

It puts together the rows held for the key, the watermark of each side, what is still to be read and
what was dropped, and claims nothing that it cannot know.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from job.join_spec.expressions import SIDES, Side
from job.join_spec.spec import JoinType
from job.plan.plan import JoinPlan
from job.protocol.answers import StateAnswer, StateRow
from job.protocol.progress import JobStatus, QueryState, SideTotals

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OTHER: dict[Side, Side] = {"left": "right", "right": "left"}
_ROWS_TOLD = 5


@dataclass(frozen=True)
class Known:
    plan: JoinPlan
    status: JobStatus
    held: dict[Side, StateAnswer]

    @property
    def watermark(self) -> datetime | None:
        last = self.status.last_batch
        return None if last is None else _moment(last.watermark_ms)

    def totals(self, side: Side) -> SideTotals:
        return self.status.totals.left if side == "left" else self.status.totals.right

    def own_watermark(self, side: Side) -> datetime | None:
        """Event time of the side minus watermark_delay, by the rule in event_time/watermark.py."""
        report = self.status.event_times.get(side)
        newest = self.totals(side).event_time_max_ms if report is None else report.event_time_ms
        return None if newest is None else _moment(newest - self.status.watermark_delay_ms[side])

    def slowest_partition(self, side: Side) -> int | None:
        """The partition whose unread records hold the side back. None: the side has no backlog."""
        report = self.status.event_times.get(side)
        return None if report is None else report.held_back_by

    def behind_latest(self, side: Side) -> int | None:
        brokers = self.status.brokers
        offsets = None if brokers is None else getattr(brokers, side).behind_latest
        return None if offsets is None else sum(offsets.values())


def why(plan: JoinPlan, status: JobStatus, left: StateAnswer, right: StateAnswer) -> list[str]:
    """Sentences, the most telling first."""
    known = Known(plan, status, {"left": left, "right": right})
    return [
        *_not_running(known),
        *_rows(known),
        *_who_holds_back(known),
        *_to_be_read(known),
        *_dropped(known),
    ]


def _not_running(known: Known) -> Iterator[str]:
    status = known.status
    if status.state is QueryState.RUNNING:
        return
    reason = f": {status.last_failure.message}" if status.last_failure else ""
    if status.state in {QueryState.PAUSED, QueryState.STOPPED}:
        reason = " until it is resumed"
    yield f"The query is {status.state}{reason}. Nothing comes out meanwhile."


def _rows(known: Known) -> Iterator[str]:
    if not any(known.held[side].rows for side in SIDES):
        yield (
            "No row of this key is held on either side: it has not been read yet, or it could not "
            "be read, came late, failed a filter, or its time is over and what there was to say of "
            "it has come out."
        )
        return
    for side in SIDES:
        rows = known.held[side].rows
        if not rows:
            yield f"No {side} row of this key is held."
        for row in rows[:_ROWS_TOLD]:
            yield _row(known, side, row)
        if len(rows) > _ROWS_TOLD or known.held[side].more:
            yield f"More {side} rows of this key are held."


def _row(known: Known, side: Side, row: StateRow) -> str:
    place = f"{row.topic}/{row.partition}/{row.offset}"
    at = "" if row.event_time is None else f", event time {_text(row.event_time)},"
    told = f"The {side} row {place}{at} is held"
    if row.matched:
        return f"{told} and has matched: its results have come out."
    if known.held[_OTHER[side]].rows:
        told += ", beside rows of the other side; where they match, the results have come out"
    leaves = row.leaves_after
    if leaves is None:
        return f"{told}. It waits for a match for ever: nothing bounds this join's state."
    fate = _fate(known.plan.join_type, side)
    watermark = known.watermark
    distance = "" if watermark is None else f", {_span(leaves - watermark)} ahead of where it is"
    return (
        f"{told}. It waits for a {_OTHER[side]} row until the watermark has passed "
        f"{_text(leaves)}{distance}; {fate}."
    )


def _fate(join_type: JoinType, side: Side) -> str:
    outer: dict[JoinType, tuple[Side, ...]] = {
        JoinType.LEFT_OUTER: ("left",),
        JoinType.LEFT_ANTI: ("left",),
        JoinType.RIGHT_OUTER: ("right",),
        JoinType.FULL_OUTER: SIDES,
    }
    if side in outer.get(join_type, ()):
        return "without one it then comes out unmatched"
    return "without one it is then dropped: this join type shows no unmatched row of this side"


def _who_holds_back(known: Known) -> Iterator[str]:
    """The watermark follows the slower side."""
    idle = [side for side in SIDES if known.status.idle.get(side)]
    if idle:
        yield (
            f"Nothing has come of late on the {' and '.join(idle)} side: its event time follows "
            "the clock, behind it by idle_after and watermark_delay."
        )
        return
    own = {side: known.own_watermark(side) for side in SIDES}
    unread = [
        f"{side} partition {partition}"
        for side in SIDES
        if own[side] is None and (partition := known.slowest_partition(side)) is not None
    ]
    if unread:
        yield (
            f"Nothing readable has been read of {' and '.join(unread)} yet, which has a backlog: "
            "the watermark does not advance before, and nothing unmatched comes out."
        )
        return
    silent = [side for side in SIDES if own[side] is None]
    if silent:
        names = " and ".join(silent)
        yield (
            f"Since the job started nothing readable has come on the {names} side: without an "
            "event time from both sides the watermark does not move, and nothing unmatched "
            "comes out."
        )
        return
    moments = {side: moment for side, moment in own.items() if moment is not None}
    slower = min(SIDES, key=lambda side: moments[side])
    distance = moments[_OTHER[slower]] - moments[slower]
    if (partition := known.slowest_partition(slower)) is not None:
        yield (
            f"Partition {partition} of the {slower} side holds the watermark back, at "
            f"{_text(moments[slower])}: it has unread records. The watermark advances as they are "
            "read."
        )
        return
    if distance > timedelta(0):
        yield (
            f"The {slower} side holds the watermark back, at {_text(moments[slower])}: the other "
            f"side is {_span(distance)} further. It moves when newer {slower} records arrive."
        )


def _to_be_read(known: Known) -> Iterator[str]:
    for side in SIDES:
        behind = known.behind_latest(side)
        if behind:
            yield (
                f"{behind:,} {side} records are not read yet; the row, or its match, may be "
                "among them."
            )


def _dropped(known: Known) -> Iterator[str]:
    late = known.status.totals.late_records
    if late:
        yield (
            f"{late:,} rows have come later than the watermark since the job started and were "
            "dropped; the row, or its match, may be among them."
        )
    for side in SIDES:
        counts = {reason: n for reason, n in known.totals(side).bad_records.items() if n}
        if counts:
            told = ", ".join(f"{n:,} {reason}" for reason, n in counts.items())
            yield f"Of the {side} side's records some could not be read: {told}."


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _span(span: timedelta) -> str:
    seconds = span.total_seconds()
    return f"{seconds:,.1f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"
