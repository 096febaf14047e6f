"""Finds the ends of partitions that have no record (job/event_time/empty_tails.py)."""

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import TopicPartition

from job.event_time.empty_tails import Tails
from job.event_time.partitions import Offsets
from job.kafka.clients import consumer, placed, poll
from job.spec.sides import SIDES, Side
from job.spec.source_topics import SourceTopics

_SECONDS = 2.0
_POLL_SECONDS = 0.2
_RECORDS_MAX = 10_000
"""Offsets of a tail that is searched. With more of them unread, the query is behind in any case."""


class TailSearch:
    """Called on one thread."""

    def __init__(self) -> None:
        self._known: dict[Side, dict[int, tuple[int, int]]] = {side: {} for side in SIDES}
        self._before_records: dict[Side, dict[int, int]] = {side: {} for side in SIDES}
        """Offsets after which a record was found."""
        self._read: Offsets = {side: {} for side in SIDES}
        """Next offsets to read at the last search."""

    def find(
        self,
        settings: Mapping[str, Any],
        group: str,
        topics: Mapping[Side, SourceTopics],
        read: Offsets,
        ends: Offsets,
    ) -> Tails:
        """The tails between the next offset to read and the end of a partition. Left out is a
        partition of which the query has read something since the last search, or whose tail is not
        known after two seconds. Raises KafkaException."""
        for side in SIDES:
            unread = {
                number: (start, ends[side][number])
                for number, start in read[side].items()
                if start < ends[side].get(number, 0) <= start + _RECORDS_MAX
                and self._read[side].get(number) == start
            }
            known = {
                number: tail
                for number, tail in self._known[side].items()
                if unread.get(number) == tail
            }
            before = self._before_records[side]
            to_search = {
                number: tail
                for number, tail in unread.items()
                if number not in known and before.get(number) != tail[0]
            }
            if to_search:
                found, with_records = _searched(settings, group, topics[side], to_search)
                known |= found
                before |= {number: to_search[number][0] for number in with_records}
            self._known[side] = known
        self._read = read
        return {side: dict(tails) for side, tails in self._known.items()}


def _searched(
    settings: Mapping[str, Any],
    group: str,
    topics: SourceTopics,
    tails: Mapping[int, tuple[int, int]],
) -> tuple[dict[int, tuple[int, int]], set[int]]:
    """The tails without a record, and the partitions with one."""
    found, with_records, waiting = {}, set(), set(tails)
    deadline = time.monotonic() + _SECONDS
    with closing(consumer(settings, group)) as client:
        client.assign(
            [TopicPartition(*topics.place(number), start) for number, (start, _) in tails.items()]
        )
        while waiting and time.monotonic() < deadline:
            message = poll(client, _POLL_SECONDS)
            if message is None:
                continue
            place = placed(message)
            number = topics.number(place.topic, place.partition)
            if number in waiting and message.error() is None:
                with_records.add(number)
            elif number in waiting and place.offset >= tails[number][1]:
                found[number] = tails[number]
            waiting.discard(number)
    return found, with_records
