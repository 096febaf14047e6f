"""Reads parts of the topics of a join: the records of both inputs by their Kafka timestamps, and
the results.

It reads committed records without a consumer group, up to offsets that are requested before the
first record is read.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaException, Message

from job.compare.outputs import AHEAD_MS
from job.compare.span import Span
from job.errors import StreamjoinError, TopicError
from job.explain.topics import input_record
from job.instants import time_text
from job.kafka.clients import (
    ANSWER_SECONDS,
    EARLIEST,
    LATEST,
    NOT_READABLE,
    AdminClient,
    at_time,
    headers_of,
    list_offsets,
    placed,
    read_to_end,
)
from job.plan.plan import JoinPlan
from job.plan.result_id import ID_HEADER, Place, places
from job.plan.side_plan import SidePlan
from job.semantics.input_records import InputRecord
from job.spec.durations import milliseconds
from job.spec.sides import SIDES, Side
from job.verify.joined import NO_EVENT_TIME, InputsRead
from job.waiting import wait_until

RECORDS_MAX = 200_000
"""Input records that are read: they stay in memory."""
_BYTES_MAX = 256 * 1024 * 1024
_READ_SECONDS = 30.0
_OPEN_SECONDS, _POLL_SECONDS = 10.0, 0.2
"""How long the transactions that are open at the beginning may take to end."""
_GROUP = "streamjoin-verify"


@dataclass(frozen=True)
class WrittenResult:
    """A record of the output topic."""

    records: Mapping[Side, Place] | None
    """None: it has no id of a result."""
    at: Place
    key: str | None
    value: str | None
    written_ms: int | None
    """Time of writing. None: its timestamp is an event time."""


class TopicPart:
    """Of each partition the records between two offsets."""

    def __init__(
        self,
        topic: str,
        earliest: Mapping[int, int],
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        *,
        is_hidden: bool = False,
    ) -> None:
        """`earliest`: first offsets that Kafka has."""
        self.topic = topic
        self.starts = dict(starts)
        self.ends = ends
        self.records = 0
        """Number of records that were read."""
        self.is_hidden = is_hidden
        """Whether an open transaction may hide records that were written before."""
        self._from_earliest = {p for p, offset in starts.items() if offset == earliest[p]}
        self._first_ms = dict.fromkeys(self._from_earliest, round(time.time() * 1000))

    def messages(self, settings: Mapping[str, str]) -> Iterator[Message]:
        """Sets `starts` to the offsets of the first records: Kafka may remove records meanwhile."""
        first = set(self._from_earliest)
        unread = (settings, self.topic, _GROUP, _READ_SECONDS, dict(self.starts), self.ends)
        for message in read_to_end(*unread):
            _, partition, offset = placed(message)
            if partition in first:
                first.remove(partition)
                self.starts[partition], self._first_ms[partition] = offset, message.timestamp()[1]
            self.records += 1
            yield message

    @property
    def removed_ms(self) -> int | None:
        """Timestamp of the newest record that Kafka may have removed. None: it has removed none.
        Valid once the part was read."""
        cut = (ms for p, ms in self._first_ms.items() if self.starts[p] > 0)
        return max(cut, default=None)

    @property
    def skips_records(self) -> bool:
        """Whether Kafka has records before the part."""
        return any(offset > 0 for p, offset in self.starts.items() if p not in self._first_ms)


@dataclass
class InputParts:
    parts: Sequence[TopicPart]
    since_ms: int | None
    until_ms: int | None
    """Timestamp before which the parts end. None: they end with the topics."""
    is_limited: bool
    """Whether RECORDS_MAX has set `until_ms`."""

    @property
    def span(self) -> Span:
        """Valid once the records were read."""
        return Span(
            {(part.topic, p): part.starts[p] for part in self.parts for p in part.starts},
            {(part.topic, p): part.ends[p] for part in self.parts for p in part.ends},
        )

    def records(self, plan: JoinPlan, settings: Mapping[str, str]) -> dict[Side, list[InputRecord]]:
        """Raises KafkaException, BrokerError, and StreamjoinError if they are too large."""
        records: dict[Side, list[InputRecord]] = {side: [] for side in SIDES}
        size = 0
        for part in self.parts:
            sides = [side for side in SIDES if part.topic in plan.side(side).topics.names]
            for message in part.messages(settings):
                size += len(message)
                if size > _BYTES_MAX:
                    raise StreamjoinError(
                        f"the input records have more than {_BYTES_MAX >> 20} MiB: choose a "
                        "shorter time with --since and --until"
                    )
                for side in sides:
                    records[side].append(input_record(plan.side(side), message))
        return records

    def read(self, plan: JoinPlan, compacted: AbstractSet[str]) -> InputsRead:
        """Valid once the records were read. `compacted`: topics of which Kafka may have removed any
        record."""
        known = {side: self._known_from_ms(plan.side(side), compacted) for side in SIDES}
        return InputsRead(self.until_ms, known)

    def _known_from_ms(self, side: SidePlan, compacted: AbstractSet[str]) -> int | None:
        parts = [part for part in self.parts if part.topic in side.topics.names]
        if any(part.topic in compacted for part in parts):
            return NO_EVENT_TIME
        times = [part.removed_ms for part in parts]
        times += [self.since_ms for part in parts if part.skips_records]
        newest = max((ms for ms in times if ms is not None), default=None)
        return None if newest is None else newest + milliseconds(side.max_event_time_ahead)

    @property
    def lines(self) -> Iterator[str]:
        """How far the topics were read."""
        start = "their first record" if self.since_ms is None else time_text(self.since_ms)
        end = "their ends" if self.until_ms is None else time_text(self.until_ms)
        for part in self.parts:
            yield f"{part.topic}: {part.records:,} records"
        limit = f", because the limit is {RECORDS_MAX:,} records" if self.is_limited else ""
        yield f"the input topics were read from {start} to {end}{limit}"


def input_parts(
    plan: JoinPlan, client: AdminClient, since_ms: int | None, until_ms: int | None
) -> InputParts:
    """Raises KafkaException, or TopicError if a topic cannot be read."""
    names = sorted(plan.input_topics)
    of_topics = {name: offsets(client, name) for name in names}
    earliest, ends = ({name: of_topics[name][n] for name in names} for n in (0, 1))
    starts = earliest
    if since_ms is not None:
        starts = {
            name: {
                p: max(earliest[name][p], offset)
                for p, offset in _offsets_at(client, since_ms, ends[name], name).items()
            }
            for name in names
        }

    def ends_at(ms: int) -> dict[str, dict[int, int]]:
        return {name: _offsets_at(client, ms, ends[name], name) for name in names}

    def records_before(ms: int) -> int:
        return _count(starts, ends_at(ms))

    until = ends if until_ms is None else ends_at(until_ms)
    is_limited = _count(starts, until) > RECORDS_MAX
    if is_limited:
        last_ms = round(time.time() * 1000) + AHEAD_MS if until_ms is None else until_ms
        until_ms = limited_ms(records_before, since_ms or 0, last_ms)
        until = ends_at(until_ms)
    elif until == ends:
        until_ms = None
    parts = [TopicPart(name, earliest[name], starts[name], until[name]) for name in names]
    return InputParts(parts, since_ms, until_ms, is_limited)


def limited_ms(records_before: Callable[[int], int], low_ms: int, high_ms: int) -> int:
    """The latest timestamp before which there are at most RECORDS_MAX records."""
    while high_ms - low_ms > 1:
        middle_ms = (low_ms + high_ms) // 2
        if records_before(middle_ms) <= RECORDS_MAX:
            low_ms = middle_ms
        else:
            high_ms = middle_ms
    return low_ms


def _count(starts: Mapping[str, Mapping[int, int]], ends: Mapping[str, Mapping[int, int]]) -> int:
    return sum(
        max(0, ends[name][p] - start) for name in starts for p, start in starts[name].items()
    )


def output_part(plan: JoinPlan, client: AdminClient, since_ms: int | None) -> TopicPart:
    """The results of records with this timestamp or a later one. Raises as `input_parts`."""
    topic = plan.output.topic
    written = offsets(client, topic, IsolationLevel.READ_UNCOMMITTED)[1]
    is_visible = wait_until(
        lambda: _has_reached(offsets(client, topic)[1], written),
        _OPEN_SECONDS + _interval_seconds(plan),
        _POLL_SECONDS,
    )
    earliest, ends = offsets(client, topic)
    if since_ms is None or plan.output.has_event_time:
        return TopicPart(topic, earliest, earliest, ends, is_hidden=not is_visible)
    # A result is written after its input records.
    at = _offsets_at(client, since_ms - AHEAD_MS, ends, topic)
    starts = {p: max(earliest[p], offset) for p, offset in at.items()}
    return TopicPart(topic, earliest, starts, ends, is_hidden=not is_visible)


def _interval_seconds(plan: JoinPlan) -> float:
    """Of the real-time engine, whose transactions are open for an interval. 0: of micro-batches."""
    real_time = plan.real_time
    return 0 if real_time is None else real_time.checkpoint_interval.total_seconds()


def _has_reached(ends: Mapping[int, int], written: Mapping[int, int]) -> bool:
    return all(ends[partition] >= end for partition, end in written.items())


def offsets(
    client: AdminClient, topic: str, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
) -> tuple[dict[int, int], dict[int, int]]:
    """The first and the end offset of each partition."""
    metadata = client.list_topics(topic, ANSWER_SECONDS).topics[topic]
    if metadata.error is not None:
        if metadata.error.code() in NOT_READABLE:
            raise TopicError(f"topic {topic} cannot be read: {metadata.error.str()}")
        raise KafkaException(metadata.error)
    earliest, ends = (
        list_offsets(client, topic, metadata.partitions, which, isolation)
        for which in (EARLIEST, LATEST)
    )
    return earliest, ends


def _offsets_at(
    client: AdminClient, ms: int, ends: Mapping[int, int], topic: str
) -> dict[int, int]:
    """The first offsets with this timestamp or a later one, at most `ends`."""
    found = list_offsets(client, topic, ends, at_time(ms))
    return {p: ends[p] if found[p] < 0 else min(found[p], ends[p]) for p in ends}


def written_results(
    plan: JoinPlan, part: TopicPart, settings: Mapping[str, str]
) -> Iterator[WrittenResult]:
    for message in part.messages(settings):
        content = dict(headers_of(message)).get(ID_HEADER) or b""
        kind, at_ms = message.timestamp()
        yield WrittenResult(
            places(content.decode(errors="replace")),
            placed(message),
            _text(message.key()),
            _text(message.value()),
            at_ms if kind and not plan.output.has_event_time else None,
        )


def _text(content: str | bytes | None) -> str | None:
    return content.decode(errors="replace") if isinstance(content, bytes) else content
