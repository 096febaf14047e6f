"""Limits how far the batches of a running query read each partition, for which Spark has no option.

Before each batch Spark requests the ends of all partitions from its Kafka source, and takes a share
of each partition up to there. While a query has a backlog, another reader replaces the source's
reader and returns lower ends. Without a backlog Spark uses its own reader.

Private API of Spark's Kafka connector 4.2.0 (KafkaMicroBatchStream, KafkaOffsetReader): see the
package docstring. If it has changed, the query runs without these limits. The behaviour is tested
by tests/integration/test_catch_up.py.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job.spark.batch_read import json_utils, kafka_streams, offsets
from job.spark.stopped_query import short_error
from job.spark.stream_execution import progress_lock
from job.spec.sides import SIDES, Side
from job.spec.source_topics import SourceTopics
from job.waiting import wait_until

_POLL_SECONDS = 0.01
_START_SECONDS = 60.0

Limit = Callable[[Side, Mapping[int, int], Mapping[int, int]], Mapping[int, int] | None]
"""Returns the offsets up to which the batch may read a side. None: Spark's own limit applies.
Arguments: the side, the next offsets of its partitions, and their ends."""


class LimitedReading:
    """Limits of one running query. All but `begin` is called on the query's own thread."""

    def __init__(
        self,
        spark: SparkSession,
        topics: Mapping[Side, SourceTopics],
        limit: Limit,
        record_failure: Callable[[Py4JJavaError], None],
        ends_valid_seconds: float = 0.0,
    ) -> None:
        """`topics`: those of each side, in the order of the join's inputs. `ends_valid_seconds`: a
        second request for the ends of a topic within this time returns the answer of the first."""
        self._topics = topics
        self._jvm: Any = spark._jvm
        self._limit = limit
        self._record_failure = record_failure
        self._ends_valid_seconds = ends_valid_seconds
        self._readers: dict[Side, _ReaderField] = {}

    def begin(self, query: StreamingQuery, locked: Callable[[], None] = lambda: None) -> bool:
        """Limit the next batches. False: the query has ended.

        Spark plans batches under its progress lock, so it plans no batch between the call of
        `locked` and the return.
        """
        with progress_lock(query) as execution:
            locked()

            def has_sources() -> bool:
                sources = execution.sources()
                return sources is not None and sources.size() >= len(SIDES)

            wait_until(lambda: has_sources() or not query.isActive, _START_SECONDS, _POLL_SECONDS)
            if not has_sources():
                return False
            for side, stream in kafka_streams(execution, tuple(self._topics)).items():
                self._readers[side] = _ReaderField(stream)
                self.put(side)
        return True

    def put(self, side: Side) -> None:
        """Limit the next batches of the side."""
        field = self._readers.get(side)
        if field is not None and not field.is_replaced:
            ends = self._ends_of(side)
            latest = _LatestOffsets(field.original, self._ends_valid_seconds)
            field.replace(_Reader(self._jvm, latest, ends, self._record_failure))

    def remove(self, side: Side) -> None:
        """Let Spark read the side without limits."""
        field = self._readers.get(side)
        if field is not None:
            field.restore()

    def _ends_of(self, side: Side) -> Callable[[str, str], str | None]:
        def ends(starts: str, latest: str) -> str | None:
            topics = self._topics[side]
            limited = self._limit(side, offsets(starts, topics), offsets(latest, topics))
            return None if limited is None else json.dumps(topics.by_topic(limited))

        return ends


class _ReaderField:
    """The field of a KafkaMicroBatchStream that contains its reader."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._field = stream.getClass().getDeclaredField("kafkaOffsetReader")
        self._field.setAccessible(True)
        self.original = self._field.get(stream)
        self.is_replaced = False

    def replace(self, reader: "_Reader") -> None:
        self._field.set(self._stream, reader)
        self.is_replaced = True

    def restore(self) -> None:
        if self.is_replaced:
            self._field.set(self._stream, self.original)
            self.is_replaced = False


class _LatestOffsets:
    """Requests the ends of a topic from Spark's own reader."""

    def __init__(self, reader: Any, valid_seconds: float) -> None:
        self.reader = reader
        self._valid_seconds = valid_seconds
        self._requested_at = -math.inf
        self._latest: Any = None

    def fetch(self, known: Any) -> Any:
        now = time.monotonic()
        if now - self._requested_at >= self._valid_seconds:
            self._latest = self.reader.fetchLatestOffsets(known)
            self._requested_at = now
        return self._latest


class _Reader:
    """org.apache.spark.sql.kafka010.KafkaOffsetReader: Spark's own, with lower latest offsets."""

    class Java:
        implements = ("org.apache.spark.sql.kafka010.KafkaOffsetReader",)

    def __init__(
        self,
        jvm: Any,
        latest: _LatestOffsets,
        ends: Callable[[str, str], str | None],
        record_failure: Callable[[Py4JJavaError], None],
    ) -> None:
        self._latest = latest
        self._ends = ends
        self._record_failure = record_failure
        self._json = json_utils(jvm)

    def fetchLatestOffsets(self, known: Any) -> Any:  # noqa: N802
        with self._short_errors():
            latest = self._latest.fetch(known)
            if known.isEmpty():
                return latest
            starts = self._json.partitionOffsets(known.get())
            ends = self._ends(starts, self._json.partitionOffsets(latest))
            # Parsed in the JVM: py4j would convert small offsets to Integer instead of Long.
            return latest if ends is None else self._json.partitionOffsets(ends)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            with self._short_errors():
                return getattr(self._latest.reader, name)(*arguments)

        return call

    @contextmanager
    def _short_errors(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            self._record_failure(error)
            raise short_error(error) from None
