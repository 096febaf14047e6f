"""Keys, event times and durations that fit the samples of two topics."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median

from job.proposal.columns import Table
from job.semantics.input_records import micros_of
from job.semantics.json_lines import Json, Number
from job.sql.rows import SqlRows
from job.sql.types import BIGINT, INT, STRING, SqlType

RECORD_TIMESTAMP = "record_timestamp"
"""The column with Kafka's timestamp of the record."""

_KEY_TYPES = (INT, BIGINT, STRING)
_KEY_WORDS = ("id", "key", "code", "number", "uuid")
_SCORE_MIN = 1.0

_MICROS = 1_000_000
_HOUR = 3_600 * _MICROS
_YEAR = 366 * 24 * _HOUR

# Durations that people write, in seconds.
_STEPS = (0, 1, 10, 60, 300, 900, 3_600, 21_600, 86_400, 7 * 86_400, 30 * 86_400)
_MARGIN = 1.5
"""Another sample may contain more than this one."""


@dataclass(frozen=True)
class KeyPair:
    left: str
    right: str
    shared: int
    """Number of values that both samples contain."""
    score: float


@dataclass(frozen=True)
class EventTime:
    column: str
    times: list[int]
    """Microseconds since 1970 of each row of the table."""
    disorder_us: int
    """Largest distance of a row of the sample behind an earlier row of its partition."""


def key_pairs(left: Table, right: Table) -> list[KeyPair]:
    """Pairs of columns that can be the key, the likeliest first."""
    of_left, of_right = (
        {
            name: {str(value) for value in table.values(name) if value is not None}
            for name, kind in table.columns.items()
            if kind in _KEY_TYPES
        }
        for table in (left, right)
    )
    pairs = [
        _key_pair(
            (a, values, len(values) / len(left.rows)), (b, others, len(others) / len(right.rows))
        )
        for a, values in of_left.items()
        for b, others in of_right.items()
        if left.columns[a] == right.columns[b]
    ]
    likely = [pair for pair in pairs if pair.score >= _SCORE_MIN]
    return sorted(likely, key=lambda pair: -pair.score)


def _key_pair(left: tuple[str, set[str], float], right: tuple[str, set[str], float]) -> KeyPair:
    """Each side: name, values, and the part of its rows that have different values."""
    (a, values, variety), (b, others, other_variety) = left, right
    shared = len(values & others)
    overlap = shared / max(1, min(len(values), len(others)))
    has_same_name = a.casefold() == b.casefold()
    if not shared and not has_same_name:
        return KeyPair(a, b, 0, 0.0)
    is_named_as_key = all(name.casefold().endswith(_KEY_WORDS) for name in (a, b))
    # Columns of few values, such as a country, overlap in any two topics.
    identifies = max(variety, other_variety)
    score = 2 * overlap * identifies + has_same_name + is_named_as_key + identifies
    return KeyPair(a, b, shared, score)


def event_times(table: Table, rows: SqlRows) -> list[EventTime]:
    """Columns that can be the event time, the likeliest first; the record timestamp is the last."""
    recorded = [record.timestamp_us or 0 for record in table.records]
    found: list[tuple[float, EventTime]] = []
    for name, kind in table.columns.items():
        if table.reader is not None and kind == STRING:
            continue  # a TIMESTAMP is not read from a registered string
        times = _times(table.values(name), kind, recorded, rows)
        if times is None:
            continue
        distances = [at - other for at, other in zip(times, recorded, strict=True)]
        if max(distances) <= _HOUR:  # else future_event_time: see max_event_time_ahead
            distance = median(abs(each) for each in distances)
            found.append((distance, EventTime(name, times, _disorder(table, times))))
    likely = [each for _, each in sorted(found, key=lambda pair: pair[0])]
    return [*likely, EventTime(RECORD_TIMESTAMP, recorded, _disorder(table, recorded))]


def _times(
    values: Sequence[Json], kind: SqlType, recorded: Sequence[int], rows: SqlRows
) -> list[int] | None:
    """The values as event times. None: one of them is none. A number counts only within a year of
    its record."""
    if not all(isinstance(value, str) and _may_be_time(value, kind) for value in values):
        return None
    times = micros_of([str(value) for value in values], rows)
    found = [
        at
        for at, value, other in zip(times, values, recorded, strict=True)
        if at is not None and (not isinstance(value, Number) or abs(at - other) <= _YEAR)
    ]
    return found if len(found) == len(values) else None


def _may_be_time(value: str, kind: SqlType) -> bool:
    return kind == BIGINT if isinstance(value, Number) else not value.isdigit()


def _disorder(table: Table, times: Sequence[int]) -> int:
    newest: dict[int, int] = {}
    behind = 0
    for record, at in zip(table.records, times, strict=True):
        first = newest.setdefault(record.partition, at)
        behind = max(behind, first - at)
        newest[record.partition] = max(first, at)
    return behind


def distances(
    left: Table, right: Table, keys: Sequence[tuple[str, str]], times: tuple[EventTime, EventTime]
) -> list[int]:
    """Distances of right rows to left rows of the same key: right minus left event time, in
    microseconds, for the nearest such left row."""
    by_key: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for key, at in _keyed(left, [name for name, _ in keys], times[0]):
        by_key[key].append(at)
    for each in by_key.values():
        each.sort()
    return [
        at - _nearest(by_key[key], at)
        for key, at in _keyed(right, [name for _, name in keys], times[1])
        if key in by_key
    ]


def _keyed(
    table: Table, names: Sequence[str], times: EventTime
) -> Iterator[tuple[tuple[str, ...], int]]:
    columns = [table.values(name) for name in names]
    for *key, at in zip(*columns, times.times, strict=True):
        if None not in key:
            yield tuple(str(part) for part in key), at


def _nearest(ordered: Sequence[int], at: int) -> int:
    place = bisect_left(ordered, at)
    return min(ordered[max(0, place - 1) : place + 1], key=lambda each: abs(at - each))


def longer(micros: int, at_least: timedelta = timedelta(0)) -> timedelta:
    """A round duration above `micros`, with a margin."""
    seconds = max(at_least.total_seconds(), micros * _MARGIN / _MICROS)
    days = -(-seconds // 86_400)
    return timedelta(seconds=next((step for step in _STEPS if step >= seconds), days * 86_400))
