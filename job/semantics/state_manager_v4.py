"""SymmetricHashJoinStateManager of state format 4: rows by join key and event time.

Two column families of one store:

    keyWithTsToValues   (key, event time) -> [(value, matched), …]
    tsWithKey           (event time, key) -> nothing: the index for eviction

Eviction scans the index from the end of the previous eviction to the state watermark, so its cost
is that of the removed rows; formats 1 to 3 scan all keys.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator

from job.semantics.rows import MICROS_PER_MS, JoinedRow, Key, Row, Side
from job.semantics.state_manager import KeyToValuePair, StateTimes, ValueAndMatchPair
from job.semantics.state_store import StateStore, StateStoreMetrics
from job.semantics.watermark_predicates import WatermarkPredicate

STATE_STORE_TYPES_V4 = ("keyWithTsToValues", "tsWithKey")

Values = tuple[ValueAndMatchPair, ...]


class KeyWithTsToValuesStore:
    """The values of a key, grouped and ordered by event time."""

    def __init__(self) -> None:
        self.store: StateStore[tuple[Key, int], Values] = StateStore()
        self._times: dict[Key, list[int]] = {}  # RocksDB finds these by scanning the key's prefix

    def append(self, key: Key, timestamp: int, pair: ValueAndMatchPair) -> None:
        self.put(key, timestamp, (*(self.store.get((key, timestamp)) or ()), pair))

    def get(self, key: Key, timestamp: int) -> Values:
        return self.store.get((key, timestamp)) or ()

    def get_values(self, key: Key) -> Iterator[tuple[int, Values]]:
        for timestamp in tuple(self._times.get(key, ())):
            yield timestamp, self.get(key, timestamp)

    def put(self, key: Key, timestamp: int, values: Values) -> None:
        if self.store.get((key, timestamp)) is None:
            insort(self._times.setdefault(key, []), timestamp)
        self.store.put((key, timestamp), values)

    def remove(self, key: Key, timestamp: int) -> None:
        self.store.remove((key, timestamp))
        self._times[key].remove(timestamp)
        if not self._times[key]:
            del self._times[key]

    def reindex(self) -> None:
        """Rebuild the index after an abort."""
        self._times = {}
        for (key, timestamp), _ in self.store.iterator():
            insort(self._times.setdefault(key, []), timestamp)


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

    def __init__(self, side: Side, times: StateTimes) -> None:
        self.side = side
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

    def iterator(self) -> Iterator[KeyToValuePair]:
        for (key, _), values in self.key_with_ts_to_values.store.iterator():
            yield from (KeyToValuePair(key, value, matched) for value, matched in values)

    def commit(self) -> None:
        self.key_with_ts_to_values.store.commit()

    def abort_if_needed(self) -> None:
        self.key_with_ts_to_values.store.abort_if_needed()
        self.key_with_ts_to_values.reindex()
        self.ts_with_key = TsWithKeyStore()
        for (key, timestamp), _ in self.key_with_ts_to_values.store.iterator():
            self.ts_with_key.put(timestamp, key)

    @property
    def metrics(self) -> StateStoreMetrics:
        """The keys of keyWithTsToValues: rows with one key and one event time count as one.

        So `numRowsTotal` may be lower than with the other formats.
        """
        return self.key_with_ts_to_values.store.metrics

    def _timestamp(self, key: Key, value: Row) -> int:
        """Event time of the key if it has one, otherwise of the value; the epoch for null.

        So this format evicts a row without event time; the other formats do not.
        """
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
