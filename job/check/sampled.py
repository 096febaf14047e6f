"""What a sample of a topic shows about a side of the spec. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from job.check.finding import Finding, info, warning
from job.check.reading import ReadRecord
from job.plan.side_plan import SidePlan
from job.semantics.json_lines import Members, any_json
from job.semantics.rows import Key
from job.spec.durations import duration_text, milliseconds, rounded_text
from job.spec.value_format import Format

_KEYS_SHOWN = 3


@dataclass(frozen=True)
class Measured:
    """Of one side."""

    records: int
    bad: int
    rate: float | None
    """Records per second. None: the sample is too short for one."""
    disorder_ms: int
    """Largest distance of a row behind the newest row before it in its partition."""
    late: int
    """Rows further behind than watermark_delay."""
    keys: frozenset[Key]
    key_texts: tuple[str, ...]
    """A few keys."""

    @property
    def are_all_bad(self) -> bool:
        return 0 < self.records == self.bad


def measured(side: SidePlan, read: Sequence[ReadRecord], *, rate: float | None = None) -> Measured:
    """`rate`: as in Measured."""
    behind = list(_behind(read))
    delay = milliseconds(side.watermark_delay)
    texts = dict.fromkeys(each.key_text for each in read if each.key is not None)
    return Measured(
        records=len(read),
        bad=sum(each.reason is not None for each in read),
        rate=rate,
        disorder_ms=max(behind, default=0),
        late=sum(ms > delay for ms in behind),
        keys=frozenset(each.key for each in read if each.key is not None),
        key_texts=tuple(text for text in list(texts)[:_KEYS_SHOWN] if text is not None),
    )


def findings(side: SidePlan, read: Sequence[ReadRecord], found: Measured) -> Iterator[Finding]:
    """The sentences about a sample with records."""
    topic = side.topic
    yield from _bad(topic, read)
    if found.are_all_bad:
        return
    filtered = sum(each.reason is None and not each.passes for each in read)
    if filtered:
        every = filtered == len(read) - found.bad
        yield (warning if every else info)(
            topic, f"{filtered} of {len(read)} records do not pass {side.side}.filter"
        )
    yield from _null_columns(side, read)
    entering = sum(each.passes for each in read)
    null_keys = entering - sum(each.key is not None for each in read)
    if null_keys:
        yield warning(topic, f"{null_keys} of {entering} keys are null: they match nothing")
    yield from _times(side, found)


def overlap(left: Measured, right: Measured, topics: str) -> Finding | None:
    """None: a side has no key in its sample."""
    if not left.keys or not right.keys:
        return None
    shared = len(left.keys & right.keys)
    text = f"{shared} of {len(left.keys)} keys of the left sample are in the right one"
    if shared:
        return info(topics, f"{text} ({len(right.keys)} keys)")
    shown = (", ".join(each.key_texts) for each in (left, right))
    left_shown, right_shown = shown
    return warning(
        topics,
        f"{text}: left has {left_shown}; right has {right_shown}. Compare how both topics write "
        "the key, or the samples are of different times",
    )


def _bad(topic: str, read: Sequence[ReadRecord]) -> Iterator[Finding]:
    reasons = Counter(each.reason for each in read if each.reason is not None)
    for reason, count in reasons.most_common():
        first = next(each for each in read if each.reason == reason)
        place = f"{first.record.partition}/{first.record.offset}"
        yield warning(
            topic,
            f"{count} of {len(read)} records are bad ({reason}), e.g. {place}: {first.message}",
        )


def _null_columns(side: SidePlan, read: Sequence[ReadRecord]) -> Iterator[Finding]:
    """Columns that no readable record has. Often a field has another name."""
    readable = [each for each in read if each.reason is None]
    if not readable:
        return
    nulls = frozenset.intersection(*(each.nulls for each in readable))
    fields = _fields(side, readable)
    for column in (column.name for column in side.schema.columns if column.name in nulls):
        others = [
            name for name in fields if name.casefold() == column.casefold() and name != column
        ]
        hint = f": the records have {others[0]}, and names are case-sensitive" if others else ""
        yield warning(side.topic, f"column {column} is null in all {len(readable)} records{hint}")


def _fields(side: SidePlan, read: Sequence[ReadRecord]) -> dict[str, None]:
    if side.format is not Format.JSON or side.envelope is not None:
        return {}
    fields: dict[str, None] = {}
    for each in read:
        value = each.record.value
        if value is None:
            continue
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        members = any_json(text)
        if isinstance(members, Members):
            fields |= dict.fromkeys(name for name, _ in members)
    return fields


def _times(side: SidePlan, found: Measured) -> Iterator[Finding]:
    rate = "" if found.rate is None else f"about {found.rate:,.3g} records/s; "
    delay = duration_text(side.watermark_delay)
    by = rounded_text(timedelta(milliseconds=found.disorder_ms))
    disorder = f"{rate}rows are up to {by} out of order"
    if found.late:
        yield warning(
            side.topic,
            f"{disorder}: {found.late} of {found.records} are further behind than watermark_delay, "
            f"{delay}, and are late unless the other side is further behind; a longer "
            f"{side.side}.watermark_delay keeps them",
        )
    else:
        yield info(side.topic, f"{disorder}, watermark_delay is {delay}")


def _behind(read: Sequence[ReadRecord]) -> Iterator[int]:
    """By how many ms each row is behind the newest row before it in its partition."""
    newest: dict[tuple[str | None, int], int] = {}
    for each in read:
        if each.event_time_us is not None:
            place = (each.record.topic, each.record.partition)
            before = newest.get(place, each.event_time_us)
            yield max(0, before - each.event_time_us) // 1000
            newest[place] = max(before, each.event_time_us)
