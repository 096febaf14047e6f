"""The watermark within an interval, from what its tasks have read and from the ends of topics."""

from collections.abc import Mapping
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from job.event_time.partitions import Partition, PartitionRead, Partitions, Reads
from job.query.live_watermark import WatermarkLooks
from job.query.stats import QueryStats
from job.spec.sides import Side
from tests.polling import wait_until

DELAY_MS = 10
BEFORE = Partitions(
    {0: Partition(5, 5, 100), 1: Partition(5, 5, 90)}, {0: Partition(5, 5, 100)}, {"left": 100}
)


class Interval:
    """What looks find, and the watermarks that follow."""

    def __init__(self, waits_for: Side | None = None) -> None:
        self.ends: dict[Side, dict[int, int]] = {"left": {0: 5, 1: 5}, "right": {0: 5}}
        self.reads: dict[Side, dict[int, PartitionRead]] = {"left": {}, "right": {}}
        self.raised: list[int] = []
        self.stats = QueryStats()
        self.ended = Event()
        delay_ms = {side: DELAY_MS for side in self.ends if side != waits_for}
        run = SimpleNamespace(delay_ms=delay_ms, waits_for=waits_for)
        loop: Any = SimpleNamespace(
            state=SimpleNamespace(partitions=BEFORE, run=run),
            raise_watermark=self.raised.append,
            looked=lambda _: None,
        )
        live: Any = SimpleNamespace(read=self._read)
        self._looks = WatermarkLooks(loop, self.stats, live, self._ends)

    def _read(self) -> Reads:
        return {side: dict(of_side) for side, of_side in self.reads.items()}

    def _ends(self) -> Mapping[Side, Mapping[int, int]]:
        return {side: dict(of_side) for side, of_side in self.ends.items()}

    def look(self) -> list[int]:
        """The watermarks that this look has raised."""
        before = len(self.raised)
        self._looks.look(self.ended)
        return self.raised[before:]

    def has_read(self, side: Side, number: int, offset: int, newest_ms: int | None) -> None:
        self.reads[side][number] = PartitionRead(offset, newest_ms)
        self.ends[side][number] = max(offset, self.ends[side].get(number, 0))


def test_watermark_follows_the_event_times_of_the_look_before() -> None:
    interval = Interval()
    interval.has_read("left", 0, 7, 500)
    interval.has_read("right", 0, 6, 400)
    assert [] == interval.look()

    interval.has_read("left", 0, 8, 900)
    interval.has_read("right", 0, 7, 900)
    assert [400 - DELAY_MS] == interval.look()
    assert [900 - DELAY_MS] == interval.look()


def test_unread_record_of_a_table_that_rows_wait_for_holds_the_watermark_back() -> None:
    interval = Interval(waits_for="right")
    interval.has_read("left", 0, 7, 500)
    interval.ends["right"][0] = 6
    interval.look()
    assert [] == interval.look()

    interval.has_read("right", 0, 6, 10)
    assert [500 - DELAY_MS] == interval.look()


def test_partition_with_unread_records_holds_the_watermark_back() -> None:
    interval = Interval()
    interval.has_read("left", 0, 7, 500)
    interval.has_read("right", 0, 6, 500)
    interval.ends["left"][1] = 6
    interval.look()

    # Partition 1 has read nothing since the interval began.
    assert [90 - DELAY_MS] == interval.look()
    interval.has_read("left", 1, 6, None)  # a bad record
    assert [500 - DELAY_MS] == interval.look()


def test_partition_that_was_added_holds_the_watermark_until_it_is_read() -> None:
    interval = Interval()
    interval.has_read("left", 0, 7, 500)
    interval.has_read("right", 0, 6, 500)
    interval.ends["left"][2] = 1
    interval.look()

    assert [] == interval.look()
    interval.has_read("left", 2, 1, 450)
    assert [500 - DELAY_MS] == interval.look()


def test_records_behind_which_there_are_only_markers_are_all_read() -> None:
    interval = Interval()
    interval.has_read("left", 0, 7, 500)
    interval.has_read("right", 0, 6, 500)
    interval.ends["left"][0] = 9
    interval.look()

    assert [500 - DELAY_MS] == interval.look()  # partition 0 decides, and has read up to there
    interval.ends["left"][1] = 9
    interval.look()
    assert [90 - DELAY_MS] == interval.look()
    interval.stats.empty_tails.set({"left": {1: (5, 9)}, "right": {}})
    assert [500 - DELAY_MS] == interval.look()


def test_event_times_of_the_status_are_those_of_the_last_look() -> None:
    interval = Interval()
    interval.has_read("left", 0, 7, 500)
    interval.look()

    assert 500 == interval.stats.event_times["left"].event_time_ms
    assert 100 == interval.stats.event_times["right"].event_time_ms


def test_look_that_ends_after_the_run_changes_nothing() -> None:
    interval = Interval()
    interval.has_read("left", 0, 7, 500)
    interval.ended.set()

    assert [] == interval.look()
    assert interval.stats.live_partitions is None


def test_failure_of_a_look_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr(
        "job.query.live_watermark._log",
        SimpleNamespace(warning=lambda _, reason: logged.append(reason)),
    )
    monkeypatch.setattr("job.query.live_watermark.LOOK_SECONDS", 0.001)
    interval, looks = Interval(), []

    def fails() -> Any:
        looks.append("fails")
        raise OSError("no broker\nat all")

    interval._looks._ends = fails
    with interval._looks.active():
        wait_until(lambda: len(looks) > 2, 10, "three looks")

    assert ["no broker"] == logged
