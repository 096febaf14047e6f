"""Which ends of partitions are searched. test_real_time_life.py searches on a broker."""

from collections.abc import Mapping
from typing import Any

import pytest

from job.event_time.partitions import Offsets
from job.kafka import tail_search
from job.kafka.tail_search import TailSearch

ENDS: Offsets = {"left": {0: 9, 1: 9}, "right": {0: 9}}


def test_only_a_partition_whose_reading_has_stopped_is_searched_and_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[Mapping[int, tuple[int, int]]] = []

    def found(*arguments: Any) -> tuple[dict[int, tuple[int, int]], set[int]]:
        searched.append(arguments[-1])
        return {}, set(arguments[-1])

    monkeypatch.setattr(tail_search, "_searched", found)
    search = TailSearch()
    for left in (7, 8, 8, 8):
        read: Offsets = {"left": {0: left, 1: 9}, "right": {0: 4}}
        search.find({}, "group", {"left": None, "right": None}, read, ENDS)  # type: ignore[dict-item]

    assert [{0: (4, 9)}, {0: (8, 9)}] == searched
