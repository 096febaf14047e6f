"""The input of the join, and its expected results. Pure: no broker, no clock.

Ad impressions, evenly spread over event time, and a click on each or on most. Nearly all clicks
come within the match window; one in fifty comes before the impression or after the window, so that
a join with a wrong bound has a wrong result.

Or the impressions are a table, and each click is joined with the impression of its ad.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Literal, NamedTuple

from job.instants import to_epoch_ms

FIRST_EVENT_MS = 1_700_000_000_000
_CAMPAIGNS, _USERS = 97, 1009
STRAY_SHARE = 0.02
_LONGEST_CLICK_DELAY_MS = 5_000

HOUR_MS = 3_600_000
_DENSE_MS = 300_000
BY_KEY = -1
"""In place of a partition: the partition follows from the hash of the key."""


@dataclass(frozen=True)
class Workload:
    """A join and the shape of its input. Two workloads that differ in any field share no topics."""

    name: str
    join_type: Literal["inner", "left_outer"] = "inner"
    unclicked_share: float = 0.0
    """Share of the impressions without a click."""
    match_window_ms: int = 10_000
    """A click matches from its impression's event time until this much later."""
    watermark_delay_ms: int = 10_000
    events_per_second: int = 1_000
    """Rows per second of event time, on each side."""
    out_of_order_ms: int = 5_000
    """The largest delay of an event. Below the watermark delay: no row is ever late."""
    partitions: int = 4
    is_uneven: bool = False
    """Two partitions whose event times drift apart while they are read, each in perfect order; see
    `uneven_ms`. `events_per_second` is then not used."""
    is_table: bool = False
    """Whether the impressions are a table, which has them all before the first click. The window
    and the watermark delay are then not used."""
    seed: int = 7

    @property
    def has_unmatched(self) -> bool:
        """Whether an impression without a match is emitted once it expires."""
        return self.join_type == "left_outer"

    @property
    def waits_ms(self) -> int:
        """Event time after which an impression without a match expires."""
        return self.match_window_ms + self.watermark_delay_ms


WORKLOADS = {
    workload.name: workload
    for workload in [
        Workload("inner"),
        Workload("left_outer", join_type="left_outer", unclicked_share=0.3),
        Workload("uneven", is_uneven=True, partitions=2, out_of_order_ms=0),
        # The delays are much longer than the events: the keys of both sides come in random order.
        Workload("table", is_table=True, out_of_order_ms=24 * HOUR_MS),
    ]
}


class Impression(NamedTuple):
    ad_id: int
    shown_at: int
    campaign: str
    cost: float

    def value(self) -> str:
        return (
            f'{{"ad_id":{self.ad_id},"shown_at":{self.shown_at},'
            f'"campaign":"{self.campaign}","cost":{self.cost!r}}}'
        )


class Click(NamedTuple):
    ad_id: int
    clicked_at: int
    user: str

    def value(self) -> str:
        return f'{{"ad_id":{self.ad_id},"clicked_at":{self.clicked_at},"user":"{self.user}"}}'


class Row(NamedTuple):
    """One row of the result; times in epoch milliseconds. None: the side is missing."""

    ad_id: int
    campaign: str | None
    user: str | None
    shown_at: int | None
    clicked_at: int | None


@dataclass(frozen=True)
class RowSet:
    """Rows with their multiplicity, in two numbers: equal for the same rows in any order."""

    count: int
    digest: int


def impression(ad_id: int, shown_at: int, cost: float) -> Impression:
    return Impression(ad_id, shown_at, f"c{ad_id % _CAMPAIGNS}", cost)


def click(ad_id: int, clicked_at: int) -> Click:
    return Click(ad_id, clicked_at, f"u{ad_id % _USERS}")


def events(workload: Workload, records: int) -> tuple[list[Impression], list[Click]]:
    """`records` impressions and the clicks on them, each side in its order of arrival."""
    random = Random(workload.seed)
    # Of two topics Kafka Streams reads the record with the older event time first.
    clicks_after_ms = _elapsed_ms(records, workload, records) if workload.is_table else 0
    impressions = [
        impression(
            ad_id,
            FIRST_EVENT_MS + _elapsed_ms(ad_id, workload, records),
            round(random.random(), 6),
        )
        for ad_id in range(records)
    ]
    clicks = [
        click(shown.ad_id, shown.shown_at + clicks_after_ms + _click_delay(random, workload))
        for shown in impressions
        if random.random() >= workload.unclicked_share
    ]
    jitter = workload.out_of_order_ms
    impressions.sort(key=lambda event: event.shown_at + random.random() * jitter)
    clicks.sort(key=lambda event: event.clicked_at + random.random() * jitter)
    return impressions, clicks


def _elapsed_ms(ad_id: int, workload: Workload, records: int) -> int:
    """Event time of an impression, in milliseconds after the first one."""
    if not workload.is_uneven:
        return ad_id * 1_000 // workload.events_per_second
    of_each = -(-records // workload.partitions)
    place, partition = divmod(ad_id, workload.partitions)
    return uneven_ms(partition, place, of_each)


def uneven_ms(partition: int, place: int, of_each: int) -> int:
    """Event time of the record at position `place` of one of two uneven partitions of `of_each`
    records, in milliseconds after the first one.

    Partition 0 holds an hour evenly. Partition 1 holds nine tenths of its records in the first five
    minutes of the same hour. A program that reads the same number of records of each is far ahead
    in the event time of partition 0.
    """
    dense = of_each * 9 // 10
    if partition == 0:
        return place * HOUR_MS // of_each
    if place < dense:
        return place * _DENSE_MS // dense
    return _DENSE_MS + (place - dense) * (HOUR_MS - _DENSE_MS) // (of_each - dense)


def partition_of(event: "Impression | Click", workload: Workload) -> int:
    """The partition of an event in both topics; BY_KEY if the producer decides."""
    return event.ad_id % workload.partitions if workload.is_uneven else BY_KEY


def _click_delay(random: Random, workload: Workload) -> int:
    delay = 1 + int(random.random() * _LONGEST_CLICK_DELAY_MS)
    if workload.is_table or random.random() >= STRAY_SHARE:
        return delay
    return -delay if random.random() < 0.5 else workload.match_window_ms + delay


def closing_time(impressions: Iterable[Impression], workload: Workload) -> int:
    """An event time so late that at its watermark no impression waits for its click."""
    # Twice as late as necessary: Flink SQL keeps a row for half its window longer.
    return max(event.shown_at for event in impressions) + 2 * workload.waits_ms


def closing_events(at: int, workload: Workload) -> Iterator[tuple[int, Impression, Click]]:
    """The last event of each partition on both sides, which gives no result.

    Unmatched rows are emitted when the watermark has passed their window. The closing events have
    different keys and the same time, so that the watermark never passes their own windows.
    """
    for partition in range(workload.partitions):
        yield partition, impression(-1 - 2 * partition, at, 0.0), click(-2 - 2 * partition, at)


def joined(
    impressions: Iterable[Impression], clicks: Iterable[Click], workload: Workload
) -> Iterator[Row]:
    """The expected results, computed from the events alone."""
    clicks_of = defaultdict(list)
    for event in clicks:
        clicks_of[event.ad_id].append(event)
    for shown in impressions:
        matches = [
            clicked
            for clicked in clicks_of.get(shown.ad_id, ())
            if workload.is_table
            or 0 <= clicked.clicked_at - shown.shown_at <= workload.match_window_ms
        ]
        yield from (row(shown, clicked) for clicked in matches)
        if workload.has_unmatched and not matches:
            yield Row(shown.ad_id, shown.campaign, None, shown.shown_at, None)


def row(shown: Impression, clicked: Click) -> Row:
    return Row(shown.ad_id, shown.campaign, clicked.user, shown.shown_at, clicked.clicked_at)


def click_alone(clicked: Click) -> Row:
    """The result of a program that joins nothing, for one click."""
    return Row(clicked.ad_id, None, clicked.user, None, clicked.clicked_at)


def row_of(value: bytes) -> Row:
    """A row as the join wrote it to Kafka."""
    fields = json.loads(value)
    return Row(
        fields["ad_id"],
        fields["campaign"],
        fields["user"],
        _milliseconds(fields["shown_at"]),
        _milliseconds(fields["clicked_at"]),
    )


def _milliseconds(iso: str | None) -> int | None:
    if iso is None:
        return None
    return to_epoch_ms(datetime.fromisoformat(iso))


def row_set(rows: Iterable[Row]) -> RowSet:
    count = digest = 0
    for row in rows:
        count += 1
        row_hash = hashlib.blake2b(repr(tuple(row)).encode(), digest_size=8).digest()
        digest += int.from_bytes(row_hash)
    return RowSet(count, digest % 2**64)
