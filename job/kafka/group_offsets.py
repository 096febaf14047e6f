"""Commits offsets to a consumer group without joining the group.

A consumer commits them. `AdminClient.alter_consumer_group_offsets`, and the other calls of the
client library that go to the coordinator of a group, can end the process: if the connection to the
coordinator is lost at the wrong moment, librdkafka 2.16 aborts with "Assertion `eonce->refcnt > 0'
failed" (confluentinc/librdkafka#3663, #5397).
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from job.kafka.clients import ANSWER_SECONDS, consumer

_POLL_SECONDS = 0.1

Offsets = dict[tuple[str, int], int]
"""Next offset to read, by topic and partition."""


class GroupOffsets:
    """The offsets of one group. For use on one thread."""

    def __init__(self, settings: Mapping[str, Any], group: str) -> None:
        """`settings`: librdkafka's."""
        self._committed: tuple[KafkaError | None, Offsets] | None = None
        self._consumer = consumer({**settings, "on_commit": self._on_commit}, group)

    def commit(self, offsets: Sequence[TopicPartition], seconds: float = ANSWER_SECONDS) -> None:
        """Raises KafkaException. Its code is _TIMED_OUT if there is no answer within `seconds`."""
        wanted, self._committed = _by_place(offsets), None
        deadline = time.monotonic() + seconds
        self._consumer.commit(offsets=list(offsets), asynchronous=True)
        # An answer to an earlier commit, which has timed out, can arrive first.
        while self._committed is None or self._committed[1] != wanted:
            message = self._consumer.poll(_POLL_SECONDS)
            error = None if message is None else message.error()
            if error is not None and not error.retriable():
                raise KafkaException(error)
            if time.monotonic() > deadline:
                reason = f"no answer within {seconds:g} s"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, reason))
        if self._committed[0] is not None:
            raise KafkaException(self._committed[0])

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        errors = [error, *(partition.error for partition in partitions)]
        self._committed = next(filter(None, errors), None), _by_place(partitions)


def _by_place(partitions: Sequence[TopicPartition]) -> Offsets:
    return {(place.topic, place.partition): place.offset for place in partitions}
