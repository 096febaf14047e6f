"""The demo's records, sent as fast as possible, and the expected results."""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from confluent_kafka import Message, Producer

from deploy.demo.check import differences
from deploy.demo.load import (
    TOPICS,
    WATERMARK_DELAY_MS,
    BadRecord,
    Delivered,
    Row,
    closing_pair,
    demo_records,
    expected_rows,
)
from deploy.demo.topics import output_rows
from tests.docker.stack import Stack
from tests.polling import wait_until

# Each round is an hour later than the one before. The record timestamps follow the event times: the
# job compares both, and Kafka would delete records with old timestamps.
HOUR_MS = 3_600_000
FIRST_HOURS_AGO = 24
# Partitions are filled one by one. Records that are sent together span less time than the watermark
# delay leaves besides the demo's own disorder of 5 s: else rows would be late.
AT_ONCE_MS = 2_000
FLUSH_SECONDS = 30.0
RESULT_SECONDS = 180.0


class Load:
    """`send` opens a round, another `send` continues it, `close` expires its last rows."""

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka
        self._producer = Producer(
            {"bootstrap.servers": kafka, "enable.idempotence": True, "log_level": 0}
        )
        self._delivered: list[Delivered] = []
        self._start_ms = int(time.time() * 1000) - FIRST_HOURS_AGO * HOUR_MS
        self._round = -1
        self._records: Iterator[tuple[int, Row | BadRecord]] | None = None
        self._now_ms = 0
        self._newest_ms = 0

    def send(self, seconds: int) -> None:
        """The records of this many seconds."""
        if self._records is None:
            self._round += 1
            self._now_ms = self._start_ms + self._round * HOUR_MS
            self._records = demo_records(self._now_ms, seed=self._round)
        end_ms, at_once_ms = self._now_ms + seconds * 1000, self._now_ms + AT_ONCE_MS
        for now_ms, record in self._records:
            if now_ms >= at_once_ms:
                self._flush()
                at_once_ms += AT_ONCE_MS
            self._produce(record, now_ms)
            if now_ms >= end_ms:
                break
        self._now_ms = end_ms
        self._flush()

    def close(self) -> int:
        """End the round; returns the watermark at which all its rows are decided."""
        pair = closing_pair(self._newest_ms)
        for record in pair:
            self._produce(record, record.event_time_ms)
        self._flush()
        self._records = None
        return pair[0].event_time_ms - WATERMARK_DELAY_MS

    def wrong_rows(self, stack: Stack) -> str:
        """After the end of a round: the missing, unexpected and repeated rows of all rounds."""
        closed_ms = self.close()

        def has_finished() -> bool:
            query = stack.query()
            return bool(query) and _lag(query) == 0 and _watermark_ms(query) >= closed_ms

        wait_until(has_finished, RESULT_SECONDS, "all is read and decided")
        return str(differences(expected_rows(self._delivered), output_rows(self._kafka)))

    def _produce(self, record: Row | BadRecord, now_ms: int) -> None:
        self._producer.produce(
            TOPICS[record.side],
            record.value,
            key=record.key,
            timestamp=now_ms,
            on_delivery=self._noted(record),
        )
        if not isinstance(record, BadRecord):
            self._newest_ms = max(self._newest_ms, record.event_time_ms)

    def _flush(self) -> None:
        assert 0 == self._producer.flush(FLUSH_SECONDS)

    def _noted(self, record: Row | BadRecord) -> Any:
        def note(error: object, message: Message) -> None:
            assert error is None, error
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self._delivered.append(Delivered(record, partition, offset))

        return note


def _lag(query: dict[str, Any]) -> int | None:
    behind = [query[side]["offsets_behind_latest_total"] for side in ("left", "right")]
    return None if None in behind else sum(behind)


def _watermark_ms(query: dict[str, Any]) -> float:
    watermark = query["watermark"]
    return datetime.fromisoformat(watermark).timestamp() * 1000 if watermark else 0
