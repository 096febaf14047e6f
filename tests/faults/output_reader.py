"""Reads a topic while its broker fails and returns."""

import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, TopicPartition

# A new consumer has its first records within a second or two.
RENEWAL_SECONDS = 15.0


class OutputReader:
    """Reads the committed records of a topic, from some offsets on."""

    def __init__(
        self, consumer: Callable[[], Consumer], topic: str, starts: Mapping[int, int]
    ) -> None:
        self._new_consumer = consumer
        self._starts = [
            TopicPartition(topic, partition, start) for partition, start in starts.items()
        ]
        self._consumer: Consumer | None = None
        self._renewal = 0.0

    def arrived(self) -> set[bytes | None]:
        """Keys of all records since the last poll, or again from the start: after a broker failure
        a consumer can wait indefinitely (FENCED_LEADER_EPOCH)."""
        if self._consumer is None or time.monotonic() > self._renewal:
            self.close()
            self._consumer = self._new_consumer()
            self._consumer.assign(self._starts)
            self._renewal = time.monotonic() + RENEWAL_SECONDS
        # All available records: there may be thousands before the wanted one.
        messages = self._consumer.consume(10_000, 0.2)
        return {message.key() for message in messages if not message.error()}

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
