"""The messages of bad event times, in Spark SQL over `written_event_time`."""

from datetime import UTC, datetime, timedelta

from job.instants import EPOCH
from job.plan.record_sql import min_event_time
from job.plan.side_plan import SidePlan
from job.plan.timestamp_sql import timestamp
from job.spec.durations import instant_text
from job.spec.value_schema import RECORD_COLUMN_NAMES
from job.sql.literals import quoted
from job.sql.time_zones import in_time_zone

_FORMS = "2024-03-01T10:00:00Z, 2024-03-01T11:00+01:00 or 20240301T100000Z"
_FROM, _BEFORE = (
    (datetime(year, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(seconds=1) for year in (1980, 2100)
)
"""Epoch seconds of the event times that most topics have."""
_UNITS = {
    "seconds": (1, "timestamp_seconds({})"),
    "microseconds": (10**6, "timestamp_micros({})"),
    "nanoseconds": (10**9, "timestamp_micros({} div 1000)"),
}
"""Units that a topic may have in place of milliseconds: how many are a second, and their function.
A number has a plausible time in at most one of them."""


def unparsable(side: SidePlan, field: str, shown: str) -> str:
    """`field`: the name of the event time. `shown`: SQL of its text."""
    wrong = f"{field} is neither ISO-8601 (e.g. {_FORMS}) nor epoch milliseconds: "
    return f"concat({quoted(wrong)}, {shown}, {_hint(side)})"


def absurd(side: SidePlan, field: str, shown: str) -> str:
    """As `unparsable`."""
    earliest = f"min_event_time {instant_text(side.min_event_time)}"
    too_early = [quoted(f"{field} is "), _iso("time"), quoted(f", before {earliest}")]
    beyond = quoted(f"{field} is not between {earliest} and the year 9999: ")
    problem = (
        f"CASE WHEN time < {min_event_time(side)} THEN concat({', '.join(too_early)}) "
        f"ELSE concat({beyond}, {shown}) END"
    )
    return f"concat({_with('time', _written(side), problem)}, {_hint(side)})"


def _hint(side: SidePlan) -> str:
    """`: as seconds it is …`, if the time is plausible in another unit than milliseconds; or ''."""
    if side.event_time.casefold() in RECORD_COLUMN_NAMES:
        return "''"
    is_column = side.schema.column(side.event_time) is not None
    if is_column and not side.format.has_registry:
        number = "try_cast(written_event_time AS DOUBLE)"
        kind = "CASE WHEN contains(written_event_time, '.') THEN 'DOUBLE' ELSE 'BIGINT' END"
        remedy, field = f"'; declare the column ', {kind}, ' and write '", _as_sql(side.event_time)
    else:
        # The decoder, or an expression, has read the number as milliseconds.
        number = f"cast(unix_millis({timestamp('written_event_time')}) AS DOUBLE)"
        remedy, field = "'; write '", "…"
        if is_column:
            field = f"unix_millis({_as_sql(side.event_time)})"
    cases = []
    for unit, (per_second, function) in _UNITS.items():
        plausible = f"number >= {_FROM * per_second} AND number < {_BEFORE * per_second}"
        time = f"timestamp_seconds(number / {per_second})"
        written = quoted(f"`event_time: {function.format(field)}`")
        text = f"concat({quoted(f': as {unit} it is ')}, {_iso(time)}, {remedy}, {written})"
        cases.append(f"WHEN {plausible} THEN {text}")
    return _with("number", number, f"CASE {' '.join(cases)} ELSE '' END")


def _with(name: str, value: str, text: str) -> str:
    """`text`, in which `name` is `value`. Spark generates the code of `value` once: the code of a
    method has at most 64 KB."""
    return f"transform(array({value}), {name} -> {text})[0]"


def _written(side: SidePlan) -> str:
    """The written event time as a timestamp. A text of the job itself is in UTC."""
    time = timestamp("written_event_time")
    is_text = side.schema.column(side.event_time) is not None and not side.format.has_registry
    return in_time_zone(time, side.time_zone) if is_text else time


def _as_sql(column: str) -> str:
    is_plain = column.isascii() and column.isidentifier()
    return column if is_plain else f"`{column}`"


def _iso(time: str) -> str:
    return f"concat(replace(cast({time} AS STRING), ' ', 'T'), 'Z')"
