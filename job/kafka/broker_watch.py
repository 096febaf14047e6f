"""Polls the brokers for the offsets of the topics, and commits group offsets.

The offsets that the query has read are committed to the group `streamjoin-<name>` for ordinary lag
tools: Spark keeps its offsets only in the checkpoint. No decision depends on the group.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

import structlog
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

from job.event_time.empty_tails import EmptyTails
from job.event_time.partitions import Offsets
from job.kafka.clients import (
    EARLIEST,
    LATEST,
    AdminClient,
    admin,
    describe_error,
    list_offsets,
    list_offsets_of_topics,
)
from job.kafka.group_offsets import GroupOffsets
from job.kafka.tail_search import TailSearch
from job.kafka.topic_ends import partition_numbers
from job.kafka.topic_ids import topics as describe_topics
from job.kafka.topic_patterns import matching_topics
from job.plan.plan import JoinPlan
from job.protocol.reports import BrokerReport, SideOffsets
from job.spec.sides import SIDES, Side
from job.spec.source_topics import SourceTopics

COMMIT_SECONDS = 1.0
POLL_SECONDS = 5.0

_log = structlog.get_logger()

Topics = Mapping[Side, SourceTopics]


class BrokerWatch:
    """Polls every few seconds on its own thread, from `start` to `close`."""

    def __init__(
        self,
        plan: JoinPlan,
        settings: Callable[[], Mapping[str, str]],
        read: Callable[[], Offsets | None],
        topics: Callable[[], Topics],
        compare_topics: Callable[[AdminClient], None],
        tails: EmptyTails,
    ) -> None:
        """`settings`: librdkafka's, read again after each failure. `read`: next offsets to read.
        `topics`: the topics of each side. `compare_topics`: called first in each poll.
        `tails`: set by each poll.
        """
        self._plan = plan
        self._settings = settings
        self._read = read
        self._topics = topics
        self._compare_topics = compare_topics
        self._tails, self._search = tails, TailSearch()
        self._client: AdminClient | None = None
        self._group: GroupOffsets | None = None
        self._committed: Offsets | None = None
        self._ends: dict[Side, tuple[dict[int, int], dict[int, int]]] = {}
        self._written: tuple[datetime, Offsets] | None = None
        self._output: dict[int, int] | None = None
        self._new_topics: Mapping[Side, list[str]] = {}
        self._answered_at: datetime | None = None
        self._error: str | None = None
        self._commit_error: str | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="broker-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()

    def report(self) -> BrokerReport:
        return BrokerReport(
            left=self._side("left"),
            right=self._side("right"),
            output=SideOffsets(topic=self._plan.output.topic, latest=self._output),
            answered_at=self._answered_at,
            error=self._error,
        )

    def all_read_before(self, side: Side) -> datetime | None:
        """A time before which every record of the side's topic has been read. None: unknown.

        Records of an open transaction count as not read: they are read later, and may be older
        than the others.
        """
        read, written = self._read(), self._written
        if read is None or written is None:
            return None
        polled_at, ends = written
        passed = self._tails.passed(side, read[side])
        is_read = all(passed.get(partition, 0) >= end for partition, end in ends[side].items())
        return polled_at if is_read else None

    def _side(self, side: Side) -> SideOffsets:
        read, ends = self._read(), self._ends.get(side)
        return SideOffsets(
            topic=str(self._topics()[side]),
            new_topics=self._new_topics.get(side, []),
            read=None if read is None else self._tails.passed(side, read[side]),
            earliest=ends[0] if ends else None,
            latest=ends[1] if ends else None,
        )

    def _watch(self) -> None:
        next_poll = 0.0
        while not self._closed.wait(COMMIT_SECONDS):
            if time.monotonic() >= next_poll:
                next_poll = time.monotonic() + POLL_SECONDS
                _try(self._poll, self._failed)
                if self._error is None:
                    _try(self._poll_output, self._output_failed)
            if self._error is None:
                _try(self._commit, self._commit_failed)
        self._group = None  # ends its connections, on this thread

    def _failed(self, reason: str) -> None:
        if self._error is None:
            _log.warning("brokers_unreachable", reason=reason)
        self._error = reason
        self._client = self._group = None

    def _commit_failed(self, reason: str) -> None:
        """Only lag tools need the group: the lag is still measured without an ACL for it."""
        if self._commit_error is None:
            _log.warning("offsets_not_committed", group=self._plan.consumer_group, reason=reason)
        self._commit_error = reason

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = admin(self._settings())
        return self._client

    def _commit(self) -> None:
        read = self._read()
        if read is None or read == self._committed:
            return
        if self._group is None:
            self._group = GroupOffsets(self._settings(), self._plan.consumer_group)
        self._group.commit(group_offsets(self._topics(), read))
        self._committed, self._commit_error = read, None

    def _poll(self) -> None:
        client, polled_at, topics = self._admin(), datetime.now(UTC), self._topics()
        self._compare_topics(client)
        ends = {side: _ends(client, topics[side]) for side in SIDES}
        self._written = (
            polled_at,
            {side: _written(client, topics[side], ends[side][1]) for side in SIDES},
        )
        self._find_tails(topics, {side: latest for side, (_, latest) in ends.items()})
        self._find_new_topics(client, topics)
        if self._error is not None:
            _log.info("brokers_back")
        self._ends, self._answered_at, self._error = ends, datetime.now(UTC), None

    def _find_tails(self, topics: Topics, ends: Offsets) -> None:
        read = self._read()
        if self._plan.real_time is not None and read is not None:
            group = self._plan.consumer_group
            self._tails.set(self._search.find(self._settings(), group, topics, read, ends))

    def _poll_output(self) -> None:
        self._output = _output_ends(self._admin(), self._plan.output.topic)

    def _output_failed(self, _: str) -> None:
        """The lag of the inputs is known nevertheless."""
        self._output = None

    def _find_new_topics(self, client: AdminClient, topics: Topics) -> None:
        """Find the matching topics of patterns that a restart would add."""
        if not any(of_side.names for of_side in topics.values() if of_side.pattern is not None):
            return
        matching = matching_topics(client, self._plan)
        new = {side: sorted(matching[side] - set(topics[side].names)) for side in matching}
        for side, names in new.items():
            if names and names != self._new_topics.get(side):
                reason = "they match topic_pattern; a restart of the query reads them"
                _log.warning("topics_not_read", side=side, topics=names, reason=reason)
        self._new_topics = new


def _try(step: Callable[[], None], failed: Callable[[str], None]) -> None:
    try:
        step()
    except Exception as error:
        failed(describe_error(error) if isinstance(error, KafkaException) else str(error))


def group_offsets(topics: Topics, read: Offsets) -> list[TopicPartition]:
    """Next offset to read of each partition, one entry per partition.

    In a self join both sides read the same partitions: the entry is the smaller offset, so the lag
    of the group is the lag of the slower side.
    """
    offsets: dict[tuple[str, int], int] = {}
    for side in SIDES:
        for partition, offset in read[side].items():
            place = topics[side].place(partition)
            offsets[place] = min(offset, offsets.get(place, offset))
    return [TopicPartition(*place, offset) for place, offset in offsets.items()]


def _ends(client: AdminClient, topics: SourceTopics) -> tuple[dict[int, int], dict[int, int]]:
    """Per partition the earliest offset, and the offset after the last committed record."""
    partitions = partition_numbers(client, topics)
    committed = IsolationLevel.READ_COMMITTED
    earliest, latest = (
        list_offsets_of_topics(client, topics, partitions, which, committed)
        for which in (EARLIEST, LATEST)
    )
    return earliest, latest


def _output_ends(client: AdminClient, topic: str) -> dict[int, int] | None:
    """Per partition the offset after the last committed record. None: the topic does not exist.

    The topic is described first: a request for its offsets could create it.
    """
    described = describe_topics(client, [topic]).get(topic)
    if described is None:
        return None
    partitions = range(described.partitions)
    return list_offsets(client, topic, partitions, LATEST, IsolationLevel.READ_COMMITTED)


def _written(
    client: AdminClient, topics: SourceTopics, partitions: Iterable[int]
) -> dict[int, int]:
    """Per partition the offset after the last record, committed or not."""
    return list_offsets_of_topics(client, topics, partitions, LATEST)
