"""Limits how far the batches of a running query read each partition, for which Spark has no option.

Before each batch Spark asks its Kafka source for the ends of all partitions, and takes a share of
each partition up to there. While a query has a backlog, another reader replaces the source's reader
and returns lower ends. Without a backlog Spark uses its own reader.

Private API of Spark's Kafka connector 4.2.0 (KafkaMicroBatchStream, KafkaOffsetReader), pinned by
tests/integration/test_catch_up.py. If it has changed, the query runs without these limits.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job.join_spec.expressions import SIDES, Side
from job.spark.batch_read import json_utils, kafka_streams, offsets

_LOOK_SECONDS = 0.01
_START_SECONDS = 60.0

Limit = Callable[[Side, Mapping[int, int], Mapping[int, int]], Mapping[int, int] | None]
"""From a side, the next offsets of its partitions and their ends: the ends that the batch may read
up to. None: as far as Spark's own limit allows."""


class LimitedReading:
    """Of one running query. All but `begin` is called on the query's own thread."""

    def __init__(
        self, spark: SparkSession, limit: Limit, failed: Callable[[Py4JJavaError], None]
    ) -> None:
        self._jvm: Any = spark._jvm
        self._limit = limit
        self._failed = failed
        self._places: dict[Side, _Place] = {}

    def begin(self, query: StreamingQuery) -> bool:
        """Limit the batches from the first one on; False: the query has ended meanwhile.

        Spark plans batches under its progress lock: none is planned before this returns.
        """
        execution = query._jsq.streamingQuery()
        with _locked(execution.awaitProgressLock()):
            deadline = time.monotonic() + _START_SECONDS
            while not execution.sources() or execution.sources().size() < len(SIDES):
                if not query.isActive or time.monotonic() > deadline:
                    return False
                time.sleep(_LOOK_SECONDS)
            for side, stream in kafka_streams(execution).items():
                self._places[side] = _Place(stream)
                self.put(side)
        return True

    def put(self, side: Side) -> None:
        """Limit the next batches of the side."""
        place = self._places.get(side)
        if place is not None and not place.is_taken:
            place.take(_Reader(self._jvm, place.own, self._ends_of(side), self._failed))

    def remove(self, side: Side) -> None:
        """Let Spark read the side as it does by itself."""
        place = self._places.get(side)
        if place is not None:
            place.give_back()

    def _ends_of(self, side: Side) -> Callable[[str, str], str | None]:
        def ends(starts: str, latest: str) -> str | None:
            limited = self._limit(side, offsets(starts), offsets(latest))
            return None if limited is None else _with_offsets(latest, limited)

        return ends


class _Place:
    """The field of a KafkaMicroBatchStream that holds its reader."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._field = stream.getClass().getDeclaredField("kafkaOffsetReader")
        self._field.setAccessible(True)
        self.own = self._field.get(stream)
        self.is_taken = False

    def take(self, reader: "_Reader") -> None:
        self._field.set(self._stream, reader)
        self.is_taken = True

    def give_back(self) -> None:
        if self.is_taken:
            self._field.set(self._stream, self.own)
            self.is_taken = False


class _Reader:
    """org.apache.spark.sql.kafka010.KafkaOffsetReader: Spark's own, with lower latest offsets."""

    class Java:
        implements = ("org.apache.spark.sql.kafka010.KafkaOffsetReader",)

    def __init__(
        self,
        jvm: Any,
        own: Any,
        ends: Callable[[str, str], str | None],
        failed: Callable[[Py4JJavaError], None],
    ) -> None:
        self._own = own
        self._ends = ends
        self._failed = failed
        self._json = json_utils(jvm)

    def fetchLatestOffsets(self, known: Any) -> Any:  # noqa: N802
        try:
            latest = self._own.fetchLatestOffsets(known)
            if known.isEmpty():
                return latest
            starts = self._json.partitionOffsets(known.get())
            ends = self._ends(starts, self._json.partitionOffsets(latest))
            # Made from text in the JVM: py4j would make the offsets Integers.
            return latest if ends is None else self._json.partitionOffsets(ends)
        except Py4JJavaError as error:
            self._failed(error)
            raise

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._own, name)


def _with_offsets(text: str, limited: Mapping[int, int]) -> str:
    return json.dumps(
        {
            topic: {number: limited[int(number)] for number in partitions}
            for topic, partitions in json.loads(text).items()
        }
    )


@contextmanager
def _locked(lock: Any) -> Iterator[None]:
    lock.lock()
    try:
        yield
    finally:
        lock.unlock()
