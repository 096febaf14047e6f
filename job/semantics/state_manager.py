"""SymmetricHashJoinStateManager of state formats 1 and 2: the rows of one side by join key.

A multi-map in two stores:

    KeyToNumValuesStore        key          -> number of values
    KeyWithIndexToValueStore   (key, index) -> (value, matched)

The values of a key have the indices 0 .. number of values - 1 without a gap: a removal moves the
last value into the gap. Format 1 has no matched flag, so outer joins need format 2 (SPARK-26154).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

from job.semantics.event_time import is_behind
from job.semantics.rows import JoinedRow, Key, Row, Side
from job.semantics.state_store import StateStore, StateStoreMetrics
from job.semantics.watermark_predicates import WatermarkPredicate

StateFormatVersion = Literal[1, 2, 3, 4]

StateStoreType = Literal["keyToNumValues", "keyWithIndexToValue"]
STATE_STORE_TYPES: tuple[StateStoreType, ...] = ("keyToNumValues", "keyWithIndexToValue")


class KeyToValuePair(NamedTuple):
    """A row that was removed from state."""

    key: Key
    value: Row
    matched: bool


class ValueAndMatchPair(NamedTuple):
    value: Row
    matched: bool


@dataclass(frozen=True)
class StateTimes:
    """Functions that read the event time of a stored row from its key and from its value."""

    of_key: Callable[[Key], int | None]
    of_value: Callable[[Row], int | None]


class StateManager(Protocol):
    """Interface of a state format for OneSideHashJoiner."""

    def append(self, key: Key, value: Row, *, matched: bool) -> None: ...

    def get(self, key: Key) -> Iterator[Row]: ...

    def get_joined_rows(
        self,
        key: Key,
        generate_joined_row: Callable[[Row], JoinedRow],
        predicate: Callable[[JoinedRow], bool],
    ) -> Iterator[JoinedRow]: ...

    def get_joined_rows_and_remove_matched(
        self,
        key: Key,
        generate_joined_row: Callable[[Row], JoinedRow],
        predicate: Callable[[JoinedRow], bool],
    ) -> Iterator[JoinedRow]: ...

    def evict(self, predicate: WatermarkPredicate) -> Iterator[KeyToValuePair]: ...

    def iterator(self) -> Iterator[KeyToValuePair]: ...

    def commit(self) -> None: ...

    def abort_if_needed(self) -> None: ...

    @property
    def metrics(self) -> StateStoreMetrics: ...


class KeyToNumValuesStore:
    """Number of values of each key; a key without values has no entry."""

    def __init__(self) -> None:
        self.store: StateStore[Key, int] = StateStore()

    def get(self, key: Key) -> int:
        return self.store.get(key) or 0

    def put(self, key: Key, num_values: int) -> None:
        if num_values <= 0:
            raise ValueError(f"a key with {num_values} values must be removed")
        self.store.put(key, num_values)

    def remove(self, key: Key) -> None:
        self.store.remove(key)

    def iterator(self) -> Iterator[tuple[Key, int]]:
        return self.store.iterator()


class KeyWithIndexToValueStore:
    """The value at each index of a key."""

    def __init__(self) -> None:
        self.store: StateStore[tuple[Key, int], ValueAndMatchPair] = StateStore()

    def get(self, key: Key, index: int) -> ValueAndMatchPair:
        pair = self.store.get((key, index))
        if pair is None:
            raise LookupError(f"key {key} has no value {index}: the stores are inconsistent")
        return pair

    def get_all(self, key: Key, num_values: int) -> Iterator[tuple[int, ValueAndMatchPair]]:
        for index in range(num_values):
            yield index, self.get(key, index)

    def put(self, key: Key, index: int, value: Row, *, matched: bool) -> None:
        self.store.put((key, index), ValueAndMatchPair(value, matched))

    def remove(self, key: Key, index: int) -> None:
        """Leaves a gap, which the caller must fill."""
        self.store.remove((key, index))

    def remove_all_values(self, key: Key, num_values: int) -> None:
        for index in range(num_values):
            self.remove(key, index)


class SymmetricHashJoinStateManager:
    """Facade of the two stores."""

    def __init__(self, side: Side, times: StateTimes) -> None:
        self.side = side
        self._times = times
        self.key_to_num_values = KeyToNumValuesStore()
        self.key_with_index_to_value = KeyWithIndexToValueStore()

    def append(self, key: Key, value: Row, *, matched: bool) -> None:
        num_values = self.key_to_num_values.get(key)
        self.key_with_index_to_value.put(key, num_values, value, matched=matched)
        self.key_to_num_values.put(key, num_values + 1)

    def get(self, key: Key) -> Iterator[Row]:
        num_values = self.key_to_num_values.get(key)
        return (pair.value for _, pair in self.key_with_index_to_value.get_all(key, num_values))

    def get_joined_rows(
        self,
        key: Key,
        generate_joined_row: Callable[[Row], JoinedRow],
        predicate: Callable[[JoinedRow], bool],
    ) -> Iterator[JoinedRow]:
        """The joined rows of `key` that pass. Marks their values as matched."""
        num_values = self.key_to_num_values.get(key)
        for index, (value, matched) in self.key_with_index_to_value.get_all(key, num_values):
            row = generate_joined_row(value)
            if predicate(row):
                if not matched:
                    self.key_with_index_to_value.put(key, index, value, matched=True)
                yield row

    def get_joined_rows_and_remove_matched(
        self,
        key: Key,
        generate_joined_row: Callable[[Row], JoinedRow],
        predicate: Callable[[JoinedRow], bool],
    ) -> Iterator[JoinedRow]:
        """As get_joined_rows, but removes each matched value (left semi)."""
        num_values = self.key_to_num_values.get(key)
        remaining, index = num_values, 0
        while index < remaining:
            value, matched = self.key_with_index_to_value.get(key, index)
            row = generate_joined_row(value)
            if matched or predicate(row):
                remaining = self._remove_value_at(key, index, remaining)
                if not matched:
                    yield row
            else:
                index += 1
        if remaining != num_values:
            self._update_num_values(key, remaining)

    def evict(self, predicate: WatermarkPredicate) -> Iterator[KeyToValuePair]:
        """Removes rows at or behind the state watermark, by key or by value."""
        limit = predicate.watermark_ms
        if predicate.on == "key":
            return self.remove_by_key_condition(
                lambda key: is_behind(self._times.of_key(key), limit)
            )
        return self.remove_by_value_condition(
            lambda value: is_behind(self._times.of_value(value), limit)
        )

    def remove_by_key_condition(self, condition: Callable[[Key], bool]) -> Iterator[KeyToValuePair]:
        """Removes keys that satisfy the condition, with all their values.

        Exhaust it before other calls on this manager.
        """
        for key, num_values in self.key_to_num_values.iterator():
            if condition(key):
                pairs = [p for _, p in self.key_with_index_to_value.get_all(key, num_values)]
                self.key_with_index_to_value.remove_all_values(key, num_values)
                self.key_to_num_values.remove(key)
                yield from (KeyToValuePair(key, value, matched) for value, matched in pairs)

    def remove_by_value_condition(
        self, condition: Callable[[Row], bool]
    ) -> Iterator[KeyToValuePair]:
        """Removes values that satisfy the condition, and keys without remaining values.

        Exhaust it before other calls on this manager.
        """
        for key, num_values in self.key_to_num_values.iterator():
            remaining, index = num_values, 0
            while index < remaining:
                value, matched = self.key_with_index_to_value.get(key, index)
                if condition(value):
                    # Check the same index again: it has the last value now.
                    remaining = self._remove_value_at(key, index, remaining)
                    yield KeyToValuePair(key, value, matched)
                else:
                    index += 1
            if remaining != num_values:
                self._update_num_values(key, remaining)

    def _remove_value_at(self, key: Key, index: int, num_values: int) -> int:
        """Moves the last value into the gap. Returns the number of remaining values."""
        last = num_values - 1
        if index != last:
            value, matched = self.key_with_index_to_value.get(key, last)
            self.key_with_index_to_value.put(key, index, value, matched=matched)
        self.key_with_index_to_value.remove(key, last)
        return last

    def _update_num_values(self, key: Key, num_values: int) -> None:
        """updateNumValueForCurrentKey."""
        if num_values >= 1:
            self.key_to_num_values.put(key, num_values)
        else:
            self.key_to_num_values.remove(key)

    def iterator(self) -> Iterator[KeyToValuePair]:
        for key, num_values in self.key_to_num_values.iterator():
            for _, (value, matched) in self.key_with_index_to_value.get_all(key, num_values):
                yield KeyToValuePair(key, value, matched)

    def commit(self) -> None:
        self.key_to_num_values.store.commit()
        self.key_with_index_to_value.store.commit()

    def abort_if_needed(self) -> None:
        self.key_to_num_values.store.abort_if_needed()
        self.key_with_index_to_value.store.abort_if_needed()

    @property
    def metrics(self) -> StateStoreMetrics:
        """Memory of both stores, but only the keys of the second one: each row counts once."""
        values = self.key_with_index_to_value.store.metrics
        both = StateStoreMetrics.combine(self.key_to_num_values.store.metrics, values)
        return replace(both, num_keys=values.num_keys)


def get_state_store_name(side: Side, store_type: str) -> str:
    """E.g. `left-keyToNumValues`."""
    return f"{side}-{store_type}"


def all_state_store_names(*sides: Side) -> list[str]:
    return [get_state_store_name(side, kind) for side in sides for kind in STATE_STORE_TYPES]


def key_schema(key_types: list[str]) -> list[tuple[str, str]]:
    """The columns of a state key: `field` and the ordinal of the join key."""
    return [(f"field{ordinal}", key_type) for ordinal, key_type in enumerate(key_types)]
