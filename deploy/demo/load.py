"""The records of the demo with two streams, and the results that the join must emit for them. Pure:
no Kafka, no clock, no import of the job.

The expected results are computed here from the rules in the documentation, without code of the job,
so that the demo detects wrong results.
"""

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import ClassVar, Literal, Protocol, TypeVar

T = TypeVar("T")
Side = Literal["left", "right"]
SIDES: tuple[Side, ...] = ("left", "right")

# As in streams.yaml; a test compares both.
TOPICS: Mapping[Side, str] = {"left": "impressions", "right": "clicks"}
OUTPUT_TOPIC = "attributed"
MATCH_AFTER_MS = 10_000
WATERMARK_DELAY_MS = 10_000

# Enough for visible figures, and little enough to leave the CPU of a small machine to Spark.
IMPRESSIONS_PER_SECOND = 300
# Half of the watermark delay: no row is late, wherever the job cuts its batches.
OUT_OF_ORDER_MS = 5_000
SEED = 20_26

NEVER_CLICKED = 0.30
CLICKED_TWICE = 0.05
SHOWN_TWICE = 0.03
NO_AD_ID = 0.01
COSTS_NOTHING = 0.03
BAD_RECORD = 0.02

# Rare cases are frequent here: a short run contains each of them many times.
CAMPAIGNS = {"spring": 30, "travel": 25, "coffee": 25, "shoes": 15, "test": 4, None: 1}
USERS = {"ada": 20, "alan": 20, "edsger": 18, "grace": 18, "barbara": 15, "bot": 8, None: 1}
# Time from the impression to its click, both ends included: most within the match window, some
# exactly on its edges, one millisecond outside of it, or far too late.
CLICK_DELAYS_MS = {
    (200, 9_500): 88,
    (0, 0): 2,
    (MATCH_AFTER_MS, MATCH_AFTER_MS): 2,
    (MATCH_AFTER_MS + 1, MATCH_AFTER_MS + 1): 2,
    (-1, -1): 2,
    (MATCH_AFTER_MS + 500, MATCH_AFTER_MS + 5_000): 4,
}
BAD_REASONS = (
    "tombstone",
    "malformed_json",
    "schema_mismatch",
    "missing_event_time",
    "unparsable_event_time",
    "absurd_event_time",
    "future_event_time",
)
YEAR_10000_MS = 253_402_300_800_000
DAY_MS = 86_400_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Record(Protocol):
    """A record that the demo sends."""

    @property
    def side(self) -> Side: ...

    @property
    def key(self) -> str | None:
        """The key of the Kafka record."""

    @property
    def value(self) -> bytes | None: ...

    @property
    def has_null_key(self) -> bool:
        """Whether the job must count it as a record with a null in its join key."""


class _OfAnAd(ABC):
    """A record whose key is its ad."""

    ad_id: int | None

    @property
    def key(self) -> str | None:
        return None if self.ad_id is None else str(self.ad_id)

    @property
    def has_null_key(self) -> bool:
        return self.ad_id is None

    @property
    @abstractmethod
    def fields(self) -> dict[str, object]: ...

    @property
    def value(self) -> bytes:
        return json_bytes(self.fields)


@dataclass(frozen=True)
class Impression(_OfAnAd):
    side: ClassVar[Side] = "left"
    ad_id: int | None
    event_time_ms: int
    campaign: str | None = "spring"
    cost: float = 1.0

    @property
    def fields(self) -> dict[str, object]:
        shown_at = iso_time(self.event_time_ms)
        return {
            "ad_id": self.ad_id,
            "shown_at": shown_at,
            "campaign": self.campaign,
            "cost": self.cost,
        }


@dataclass(frozen=True)
class Click(_OfAnAd):
    side: ClassVar[Side] = "right"
    ad_id: int | None
    event_time_ms: int
    user: str | None = "ada"

    @property
    def fields(self) -> dict[str, object]:
        # Epoch milliseconds and ISO-8601: the job reads both.
        return {"ad_id": self.ad_id, "clicked_at": self.event_time_ms, "user": self.user}


@dataclass(frozen=True)
class BadRecord:
    """An unreadable record, which the job must count under `reason`."""

    side: Side
    reason: str
    value: bytes | None
    key: str | None = None
    has_null_key: ClassVar[bool] = False


Row = Impression | Click


@dataclass(frozen=True)
class Delivered:
    """A record and its position in its topic."""

    record: Record
    partition: int
    offset: int
    sent_after: int = 0
    """Number of records that the broker had acknowledged before this record was sent."""


@dataclass(frozen=True)
class OutputRow:
    id: str
    """The header streamjoin-id."""
    key: str | None
    value: str
    """The value as JSON."""
    match: str | None = None
    """The header streamjoin-match of a join with a table."""


@dataclass(frozen=True)
class Expected:
    rows: Sequence[OutputRow]
    """The rows that the join must emit, in no particular order."""
    outdated: Sequence[OutputRow] = ()
    """Those of them, as the join has emitted them, that have an older row of the table than the one
    that their record must get."""


def demo_records(start_ms: int, seed: int = SEED) -> Iterator[tuple[int, Row | BadRecord]]:
    """The records in order of arrival, each with its time of arrival; endless. The same seed and
    start give the same records.

    A record arrives up to OUT_OF_ORDER_MS after its event time.
    """
    dice = Random(seed)  # noqa: S311  # sample data
    ads = ((ad_id, start_ms + ad_id * 1000 // IMPRESSIONS_PER_SECOND) for ad_id in count(1))
    return in_order_of_arrival((now_ms, _arriving(ad_id, now_ms, dice)) for ad_id, now_ms in ads)


def in_order_of_arrival(
    groups: Iterable[tuple[int, Iterable[tuple[int, T]]]],
) -> Iterator[tuple[int, T]]:
    """The records of all groups, each with its time of arrival. A group has the time before which
    none of its records arrives; the groups are in the order of these times."""
    number_of = count()
    waiting: list[tuple[int, int, T]] = []
    for now_ms, arriving in groups:
        while waiting and waiting[0][0] < now_ms:
            arrival_ms, _, record = heappop(waiting)
            yield arrival_ms, record
        for arrival_ms, record in arriving:
            heappush(waiting, (arrival_ms, next(number_of), record))


def closing_pair(newest_ms: int) -> tuple[Impression, Click]:
    """A match whose event time moves the watermark past the end of every window."""
    closing_ms = newest_ms + MATCH_AFTER_MS + WATERMARK_DELAY_MS + 1_000
    return Impression(ad_id=0, event_time_ms=closing_ms), Click(ad_id=0, event_time_ms=closing_ms)


def expected_rows(delivered: Iterable[Delivered]) -> list[OutputRow]:
    """The results that are expected once all windows have closed, in no particular order."""
    placed = list(delivered)
    clicks = _clicks_by_ad(placed)
    rows = [
        _output_row(left, right)
        for left in placed
        if isinstance(left.record, Impression) and left.record.cost > 0
        for right in _partners(left.record, clicks) or (None,)
    ]
    return [row for row in rows if _passes_output_filter(row)]


def iso_time(milliseconds: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def bad_record(side: Side, reason: str, event_time_ms: int) -> BadRecord:
    """A readable record with one defect."""
    good = Impression(7, event_time_ms) if side == "left" else Click(7, event_time_ms)
    event_time = "shown_at" if side == "left" else "clicked_at"
    return BadRecord(side, reason, _damaged(good, event_time, reason))


def _damaged(good: Row, event_time: str, reason: str) -> bytes | None:
    match reason:
        case "tombstone":
            return None
        case "malformed_json":
            return good.value[:-7]
        case "schema_mismatch":
            return json_bytes({**good.fields, "ad_id": "seven"})
        case "missing_event_time":
            return json_bytes({name: v for name, v in good.fields.items() if name != event_time})
        case "unparsable_event_time":
            return json_bytes({**good.fields, event_time: "yesterday"})
        case "absurd_event_time":
            return json_bytes({**good.fields, event_time: YEAR_10000_MS})
        case "future_event_time":
            return json_bytes({**good.fields, event_time: good.event_time_ms + DAY_MS})
    raise ValueError(f"unknown reason: {reason}")


def _arriving(ad_id: int, now_ms: int, dice: Random) -> Iterator[tuple[int, Row | BadRecord]]:
    for record in _of_one_ad(ad_id, now_ms, dice):
        yield _arrival_ms(record, now_ms, dice), record


def _of_one_ad(ad_id: int, shown_at_ms: int, dice: Random) -> Iterator[Row | BadRecord]:
    """The events of one ad: shown, clicked or not, and sometimes a defect."""
    impression = Impression(
        None if dice.random() < NO_AD_ID else ad_id,
        shown_at_ms,
        drawn(CAMPAIGNS, dice),
        0.0 if dice.random() < COSTS_NOTHING else round(dice.uniform(0.01, 2), 2),
    )
    yield impression
    if dice.random() < SHOWN_TWICE:
        yield replace(impression, event_time_ms=shown_at_ms + dice.randint(0, MATCH_AFTER_MS))
    if dice.random() >= NEVER_CLICKED:
        for _ in range(2 if dice.random() < CLICKED_TWICE else 1):
            clicked_at_ms = shown_at_ms + dice.randint(*drawn(CLICK_DELAYS_MS, dice))
            yield Click(impression.ad_id, clicked_at_ms, drawn(USERS, dice))
    if dice.random() < BAD_RECORD:
        yield bad_record(dice.choice(SIDES), dice.choice(BAD_REASONS), shown_at_ms)


def drawn(weights: Mapping[T, int], dice: Random) -> T:
    return dice.choices(list(weights), list(weights.values()))[0]


def _arrival_ms(record: Row | BadRecord, now_ms: int, dice: Random) -> int:
    if isinstance(record, BadRecord):
        return now_ms
    # Not before now: earlier records have already been returned.
    return max(now_ms, record.event_time_ms + dice.randint(0, OUT_OF_ORDER_MS))


def _clicks_by_ad(delivered: Iterable[Delivered]) -> Mapping[int | None, list[Delivered]]:
    clicks = defaultdict(list)
    for row in delivered:
        if isinstance(row.record, Click):
            clicks[row.record.ad_id].append(row)
    return clicks


def _partners(
    impression: Impression, clicks: Mapping[int | None, list[Delivered]]
) -> list[Delivered]:
    of_this_ad = clicks.get(impression.ad_id, [])
    return [right for right in of_this_ad if _is_match(impression, right.record)]


def _is_match(impression: Impression, right: Record) -> bool:
    """The ON clause. Null in SQL (a null key, a null user) is not a match."""
    return (
        isinstance(right, Click)
        and impression.ad_id is not None
        and impression.ad_id == right.ad_id
        and 0 <= right.event_time_ms - impression.event_time_ms <= MATCH_AFTER_MS
        and right.user not in {None, "bot"}
    )


def _output_row(left: Delivered, right: Delivered | None) -> OutputRow:
    impression, click = left.record, right.record if right else None
    assert isinstance(impression, Impression)
    assert click is None or isinstance(click, Click)
    columns = {
        "ad_id": impression.ad_id,
        "campaign": impression.campaign,
        "user": click.user if click else None,
        "shown_at": iso_time(impression.event_time_ms),
        "clicked_at": iso_time(click.event_time_ms) if click else None,
    }
    return OutputRow(
        id=f"{place(left, TOPICS)}|{place(right, TOPICS) if right else ''}",
        key=impression.key,
        value=json_bytes(columns).decode(),
    )


def place(row: Delivered, topics: Mapping[Side, str]) -> str:
    """The place of a record as the headers of a result name it."""
    return f"{topics[row.record.side]}/{row.partition}/{row.offset}"


def _passes_output_filter(row: OutputRow) -> bool:
    """campaign <> 'test': SQL evaluates it to null for an unknown campaign, and drops the row."""
    return json.loads(row.value)["campaign"] not in {None, "test"}


def json_bytes(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
