"""Events that keep a wanted number of rows in state. Pure: no broker, no clock.

Impressions and clicks are evenly spread over event time, one of each a turn, and arrive far out of
order: the partner of a row arrived anywhere between just now and millions of rows ago, so a probe
goes to a random place of the state. The watermark stays further behind than that, so that no row is
late. A pair is a result if both rows have arrived before the end.

Or the state is a table, and the clicks on its rows arrive in random order.

Tens of millions of events would take gigabytes as Python objects: they are arrays here, and
become objects one by one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from bench.load import (
    FIRST_EVENT_MS,
    STRAY_SHARE,
    Click,
    Impression,
    Row,
    Workload,
    click,
    impression,
    row,
)
from job.plan.tuning import MAX_OFFSETS_PER_TRIGGER

Keys = Literal["uniform", "zipf", "table"]
ALL_KEYS: tuple[Keys, ...] = get_args(Keys)
KEYS: tuple[Keys, ...] = ("uniform", "zipf")
"""Those of a join of two streams."""

SIDES = 2
BATCH_ROWS = SIDES * MAX_OFFSETS_PER_TRIGGER
# Below this, partitions that are read at slightly different speeds would make rows late.
SMALLEST_STATE_ROWS = BATCH_ROWS + 50_000
_TURN_MS = 100
_WINDOW_TURNS = 10
# Share of the watermark delay. The rest is room for partitions that are read at different speeds.
_OUT_OF_ORDER = 0.8
# With exponent 1.1 the most frequent of this many keys has one row in seven, at any size of the
# state.
_HOT_KEYS, _ZIPF_EXPONENT = 50_000, 1.1
_CHUNK = 200_000
_COST = 0.5


@dataclass(frozen=True)
class Shape:
    """The wanted state."""

    state_rows: int
    """Rows in state between two batches, both sides together, once the size is constant."""
    keys: Keys

    @property
    def is_table(self) -> bool:
        return self.keys == "table"

    def rows_before_steady(self, warm_up: int) -> int:
        """Input rows until the state has its size and this many batches have run."""
        if self.is_table:
            return self.state_rows + warm_up * self.batch_rows
        return max(self.state_rows, warm_up * self.batch_rows)

    @property
    def batch_rows(self) -> int:
        """Input rows of a batch. Once a table is read, a batch has only rows of the stream."""
        return MAX_OFFSETS_PER_TRIGGER if self.is_table else BATCH_ROWS

    def records(self, rows: int) -> tuple[int, int]:
        """Records of the left and of the right side, of `rows` together."""
        if self.is_table:
            return self.state_rows, rows - self.state_rows
        return rows // SIDES, rows // SIDES

    @property
    def delay_turns(self) -> int:
        """The watermark delay. Rows arrive in the middle of their disorder and expire at the
        watermark, which follows a batch behind: the rows of one batch are stored on top."""
        kept_share = SIDES * (1 - _OUT_OF_ORDER / 2)
        return round((self.state_rows - BATCH_ROWS) / kept_share)

    @property
    def out_of_order_turns(self) -> int:
        return int(self.delay_turns * _OUT_OF_ORDER)

    @property
    def workload(self) -> Workload:
        if self.is_table:
            return Workload("growth-table", is_table=True)
        return Workload(
            f"growth-{self.keys}",
            match_window_ms=_WINDOW_TURNS * _TURN_MS,
            watermark_delay_ms=self.delay_turns * _TURN_MS,
            events_per_second=1_000 // _TURN_MS,
            out_of_order_ms=self.out_of_order_turns * _TURN_MS,
        )


@dataclass(frozen=True)
class Events:
    """An impression and its click each turn, and the order in which they arrive."""

    keys: NDArray[np.int64]
    shown_at: NDArray[np.int64]
    clicked_at: NDArray[np.int64]
    left: NDArray[np.int64]
    """The turns of the arriving impressions, in order of arrival."""
    right: NDArray[np.int64]

    def arriving(self) -> Iterator[Impression | Click]:
        """The next impression and the next click to arrive, in turns."""
        for start in range(0, len(self.left), _CHUNK):
            shown = self.left[start : start + _CHUNK]
            clicked = self.right[start : start + _CHUNK]
            impressions = zip(self.keys[shown].tolist(), self.shown_at[shown].tolist(), strict=True)
            clicks = zip(
                self.keys[clicked].tolist(), self.clicked_at[clicked].tolist(), strict=True
            )
            for (ad_id, shown_at), (clicked_ad_id, clicked_at) in zip(
                impressions, clicks, strict=True
            ):
                yield impression(ad_id, shown_at, _COST)
                yield click(clicked_ad_id, clicked_at)

    def joined(self) -> Iterator[Row]:
        """The expected results."""
        has_arrived = np.zeros(len(self.keys), dtype=bool)
        has_arrived[self.left] = True
        for start in range(0, len(self.right), _CHUNK):
            clicks = self.right[start : start + _CHUNK]
            turns = (self.clicked_at[clicks] - FIRST_EVENT_MS) // _TURN_MS
            for back in range(_WINDOW_TURNS + 1):
                shown = turns - back
                there = (shown >= 0) & (shown < len(self.keys))
                yield from self._pairs(shown[there], clicks[there], has_arrived)

    def _pairs(
        self, shown: NDArray[np.int64], clicks: NDArray[np.int64], has_arrived: NDArray[np.bool_]
    ) -> Iterator[Row]:
        waited = self.clicked_at[clicks] - self.shown_at[shown]
        match = (
            (self.keys[shown] == self.keys[clicks])
            & has_arrived[shown]
            & (waited >= 0)
            & (waited <= _WINDOW_TURNS * _TURN_MS)
        )
        columns = (self.keys[shown], self.shown_at[shown], self.clicked_at[clicks])
        for ad_id, shown_at, clicked_at in zip(
            *(column[match].tolist() for column in columns), strict=True
        ):
            yield row(impression(ad_id, shown_at, _COST), click(ad_id, clicked_at))


@dataclass(frozen=True)
class TableEvents:
    """The keys of a table, and those of the clicks, in the order in which they arrive."""

    table: NDArray[np.int64]
    stream: NDArray[np.int64]

    def arriving(self) -> Iterator[Impression | Click]:
        for start in range(0, len(self.table), _CHUNK):
            yield from map(_of_table, self.table[start : start + _CHUNK].tolist())
        yield from self._clicks()

    def joined(self) -> Iterator[Row]:
        """The expected results."""
        return (row(_of_table(clicked.ad_id), clicked) for clicked in self._clicks())

    def _clicks(self) -> Iterator[Click]:
        for start in range(0, len(self.stream), _CHUNK):
            keys = self.stream[start : start + _CHUNK].tolist()
            for number, ad_id in enumerate(keys, start):
                yield click(ad_id, FIRST_EVENT_MS + number)


def _of_table(ad_id: int) -> Impression:
    return impression(ad_id, FIRST_EVENT_MS, _COST)


def table_events(shape: Shape, clicks: int) -> TableEvents:
    """Each key of the table once, and `clicks` on random ones."""
    random = np.random.default_rng(shape.workload.seed)
    return TableEvents(
        table=random.permutation(shape.state_rows),
        stream=random.integers(0, shape.state_rows, clicks),
    )


def events(shape: Shape, records: int) -> Events:
    """The turns after which `records` of each side have arrived."""
    random = np.random.default_rng(shape.workload.seed)
    turns = records + shape.out_of_order_turns
    shown_at = FIRST_EVENT_MS + _TURN_MS * np.arange(turns, dtype=np.int64)
    clicked_at = shown_at + _click_delays(random, turns)
    return Events(
        keys=_keys(random, shape.keys, turns),
        shown_at=shown_at,
        clicked_at=clicked_at,
        left=_first_to_arrive(random, shown_at, shape, records),
        right=_first_to_arrive(random, clicked_at, shape, records),
    )


def _keys(random: Generator, keys: Keys, turns: int) -> NDArray[np.int64]:
    if keys == "uniform":
        return np.arange(turns, dtype=np.int64)
    up_to = np.cumsum(1 / np.arange(1, _HOT_KEYS + 1) ** _ZIPF_EXPONENT)
    return np.searchsorted(up_to / up_to[-1], random.random(turns)).astype(np.int64)


def _click_delays(random: Generator, turns: int) -> NDArray[np.int64]:
    """Within half the window, except for strays: before the impression or after the window."""
    window_ms = _WINDOW_TURNS * _TURN_MS
    delays = random.integers(1, window_ms // 2, turns)
    lot = random.random(turns)
    return np.select(
        [lot < STRAY_SHARE / 2, lot < STRAY_SHARE], [-delays, window_ms + delays], delays
    )


def _first_to_arrive(
    random: Generator, event_times: NDArray[np.int64], shape: Shape, records: int
) -> NDArray[np.int64]:
    out_of_order_ms = shape.out_of_order_turns * _TURN_MS
    arrival = event_times + random.random(len(event_times)) * out_of_order_ms
    return np.argsort(arrival)[:records]
