"""SymmetricHashJoinStateManager of state format 4: rows of one side by join key and event time.

Two column families of one store:

    keyWithTsToValues   (key, event time) -> [(value, matched), …]
    tsWithKey           (event time, key) -> nothing: the index for eviction

Eviction scans the index from the end of the previous eviction to the state watermark, so its cost
is that of the removed rows.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from job.semantics.rows import MICROS_PER_MS, JoinedRow, Key, Row
from job.semantics.watermark_predicates import WatermarkPredicate


class KeyToValuePair(NamedTuple):
    """A row that was removed from state."""

    key: Key
    value: Row
    matched: bool


class ValueAndMatchPair(NamedTuple):
    value: Row
    matched: bool


Values = tuple[ValueAndMatchPair, ...]


@dataclass(frozen=True)
class StateTimes:
    """Functions that read the event time of a stored row from its key and from its value."""

    of_key: Callable[[Key], int | None]
    of_value: Callable[[Row], int | None]


class KeyWithTsToValuesStore:
    """The values of a key, grouped and ordered by event time."""

    def __init__(self) -> None:
        self._values: dict[tuple[Key, int], Values] = {}
        self._times: dict[Key, list[int]] = {}  # RocksDB finds these by scanning the key's prefix

    def __len__(self) -> int:
        return len(self._values)

    @property
    def num_rows(self) -> int:
        return sum(map(len, self._values.values()))

    def append(self, key: Key, timestamp: int, pair: ValueAndMatchPair) -> None:
        self.put(key, timestamp, (*self.get(key, timestamp), pair))

    def get(self, key: Key, timestamp: int) -> Values:
        return self._values.get((key, timestamp), ())

    def get_values(self, key: Key) -> Iterator[tuple[int, Values]]:
        for timestamp in tuple(self._times.get(key, ())):
            yield timestamp, self.get(key, timestamp)

    def put(self, key: Key, timestamp: int, values: Values) -> None:
        if (key, timestamp) not in self._values:
            insort(self._times.setdefault(key, []), timestamp)
        self._values[key, timestamp] = values

    def remove(self, key: Key, timestamp: int) -> None:
        del self._values[key, timestamp]
        self._times[key].remove(timestamp)
        if not self._times[key]:
            del self._times[key]


class TsWithKeyStore:
    """Keys by event time, in the order of time."""

    def __init__(self) -> None:
        self._keys: dict[int, dict[Key, None]] = {}
        self._order: list[int] = []

    def put(self, timestamp: int, key: Key) -> None:
        if timestamp not in self._keys:
            insort(self._order, timestamp)
        self._keys.setdefault(timestamp, {})[key] = None

    def remove(self, timestamp: int, key: Key) -> None:
        keys = self._keys[timestamp]
        del keys[key]
        if not keys:
            del self._keys[timestamp]
            del self._order[bisect_left(self._order, timestamp)]

    def scan_evicted_keys(self, start: int | None, end: int) -> list[tuple[int, Key]]:
        """Entries with start < event time <= end."""
        first = 0 if start is None else bisect_right(self._order, start)
        times = self._order[first : bisect_right(self._order, end)]
        return [(timestamp, key) for timestamp in times for key in self._keys[timestamp]]


class SymmetricHashJoinStateManagerV4:
    """Facade of the two column families."""

    def __init__(self, times: StateTimes) -> None:
        self._times = times
        self.key_with_ts_to_values = KeyWithTsToValuesStore()
        self.ts_with_key = TsWithKeyStore()

    def append(self, key: Key, value: Row, *, matched: bool) -> None:
        timestamp = self._timestamp(key, value)
        self.key_with_ts_to_values.append(key, timestamp, ValueAndMatchPair(value, matched))
        self.ts_with_key.put(timestamp, key)

    def get(self, key: Key) -> Iterator[Row]:
        for _, values in self.key_with_ts_to_values.get_values(key):
            yield from (pair.value for pair in values)

    def get_joined_rows(
        self,
        key: Key,
        generate_joined_row: Callable[[Row], JoinedRow],
        predicate: Callable[[JoinedRow], bool],
    ) -> Iterator[JoinedRow]:
        """The joined rows of `key` that pass. Marks their values as matched."""
        for timestamp, values in self._candidates(key):
            rows = [generate_joined_row(pair.value) for pair in values]
            passed = [predicate(row) for row in rows]
            marked = tuple(
                pair._replace(matched=pair.matched or hit)
                for pair, hit in zip(values, passed, strict=True)
            )
            if marked != values:
                self.key_with_ts_to_values.put(key, timestamp, marked)
            yield from (row for row, hit in zip(rows, passed, strict=True) if hit)

    def get_joined_rows_and_remove_matched(
        self,
        key: Key,
        generate_joined_row: Callable[[Row], JoinedRow],
        predicate: Callable[[JoinedRow], bool],
    ) -> Iterator[JoinedRow]:
        """As get_joined_rows, but removes each matched value (left semi)."""
        for timestamp, values in self._candidates(key):
            rows = [generate_joined_row(pair.value) for pair in values]
            passed = [predicate(row) for row in rows]
            kept = tuple(
                pair
                for pair, hit in zip(values, passed, strict=True)
                if not hit and not pair.matched
            )
            if not kept:
                self._remove(key, timestamp)
            elif kept != values:
                self.key_with_ts_to_values.put(key, timestamp, kept)
            for pair, row, hit in zip(values, rows, passed, strict=True):
                if hit and not pair.matched:
                    yield row

    def evict(self, predicate: WatermarkPredicate) -> Iterator[KeyToValuePair]:
        start = predicate.previous_ms
        return self.evict_by_timestamp(
            end=predicate.watermark_ms * MICROS_PER_MS,
            start=None if start is None else start * MICROS_PER_MS,
        )

    def evict_by_timestamp(self, *, end: int, start: int | None = None) -> Iterator[KeyToValuePair]:
        """Removes the values with start < event time <= end.

        Exhaust it before other calls on this manager.
        """
        for timestamp, key in self.ts_with_key.scan_evicted_keys(start, end):
            values = self.key_with_ts_to_values.get(key, timestamp)
            self._remove(key, timestamp)
            yield from (KeyToValuePair(key, value, matched) for value, matched in values)

    @property
    def num_keys(self) -> int:
        """The keys of keyWithTsToValues: rows with one key and one event time count as one."""
        return len(self.key_with_ts_to_values)

    @property
    def num_rows(self) -> int:
        return self.key_with_ts_to_values.num_rows

    def _timestamp(self, key: Key, value: Row) -> int:
        """Event time of the key if it has one, otherwise of the value; the epoch for null."""
        of_key = self._times.of_key(key)
        return (of_key if of_key is not None else self._times.of_value(value)) or 0

    def _candidates(self, key: Key) -> list[tuple[int, Values]]:
        of_key = self._times.of_key(key)
        if of_key is None:
            return list(self.key_with_ts_to_values.get_values(key))
        values = self.key_with_ts_to_values.get(key, of_key)
        return [(of_key, values)] if values else []

    def _remove(self, key: Key, timestamp: int) -> None:
        self.key_with_ts_to_values.remove(key, timestamp)
        self.ts_with_key.remove(timestamp, key)
