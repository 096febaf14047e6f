"""A key-value store with commit and abort for the state managers: a dictionary and a journal."""

import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True)
class StateStoreMetrics:
    """StateStoreMetrics: number of keys, memory, and custom metrics of the store."""

    num_keys: int
    memory_used_bytes: int
    custom: dict[str, int]

    @staticmethod
    def combine(*parts: "StateStoreMetrics") -> "StateStoreMetrics":
        custom: dict[str, int] = {}
        for part in parts:
            for name, value in part.custom.items():
                custom[name] = custom.get(name, 0) + value
        return StateStoreMetrics(
            num_keys=sum(part.num_keys for part in parts),
            memory_used_bytes=sum(part.memory_used_bytes for part in parts),
            custom=custom,
        )


class StateStore(Generic[K, V]):
    """Changes take effect at once; commit() keeps them, abort_if_needed() undoes them."""

    def __init__(self) -> None:
        self.version = 0
        self._entries: dict[K, V] = {}
        self._journal: list[tuple[K, V | None]] = []  # old value of each changed key
        self._bytes = 0
        self._puts = 0
        self._removes = 0

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        self._journal.append((key, self._entries.get(key)))
        self._set(key, value)
        self._puts += 1

    def remove(self, key: K) -> None:
        if key in self._entries:
            self._journal.append((key, self._entries[key]))
            self._set(key, None)
            self._removes += 1

    def iterator(self) -> Iterator[tuple[K, V]]:
        """A snapshot of all entries: later changes are not visible (SPARK-38320)."""
        return iter(list(self._entries.items()))

    def commit(self) -> None:
        self._journal.clear()
        self.version += 1

    def abort_if_needed(self) -> None:
        """Undo the changes since the last commit, if any."""
        while self._journal:
            key, before = self._journal.pop()
            self._set(key, before)

    @property
    def metrics(self) -> StateStoreMetrics:
        custom = {"puts": self._puts, "removes": self._removes, "version": self.version}
        return StateStoreMetrics(len(self._entries), self._bytes, custom)

    def _set(self, key: K, value: V | None) -> None:
        if key in self._entries:
            self._bytes -= sys.getsizeof(key) + sys.getsizeof(self._entries.pop(key))
        if value is not None:
            self._entries[key] = value
            self._bytes += sys.getsizeof(key) + sys.getsizeof(value)
