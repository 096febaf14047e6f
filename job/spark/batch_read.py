"""Offsets and event times that a batch has read from both topics, before Spark commits the batch.

Private API of Spark 4.3.0 and its Kafka connector: see the package docstring. The behaviour is
tested by tests/integration/test_catch_up.py.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job.event_time.partitions import EVENT_TIMES, BatchRead, EventTimes
from job.jvm_class import jvm_class
from job.spark.observed_metrics import batch_metrics
from job.spark.stream_execution import stream_execution
from job.spec.sides import SIDES, Side
from job.spec.source_topics import SourceTopics

OffsetsOfSide = Mapping[int, int]


def batch_read(
    query: StreamingQuery,
    spark: SparkSession,
    topics: Mapping[Side, SourceTopics],
    planned_ends: Mapping[Side, OffsetsOfSide],
) -> BatchRead:
    """What the current batch has read. Call it when all rows of the batch have been computed.

    `topics`: those of each side, in the order of the join's inputs.
    `planned_ends`: the ends of the partitions when the batch was planned, of the sides for which
    Spark got lower ones. The ends of a batch that was planned before a crash are unknown; then the
    brokers' present ends are used, which only delays the watermark.
    """
    execution = stream_execution(query)
    observed = {side: batch_metrics(query, side) for side in SIDES}
    streams = kafka_streams(execution, tuple(topics))
    context = execution.getLatestExecutionContext()
    ends, latest = context.endOffsets(), context.latestOffsets()
    next_offsets = {side: offsets(ends.apply(streams[side]).json(), topics[side]) for side in SIDES}
    latest_offsets = {
        side: planned_ends.get(side)
        or _latest(latest.get(streams[side]), streams[side], topics[side], spark._jvm)
        for side in SIDES
    }
    return BatchRead(next_offsets, latest_offsets, event_times(observed), newest(observed))


def kafka_streams(execution: Any, inputs: Sequence[Side]) -> dict[Side, Any]:
    """The KafkaMicroBatchStream of each side. Spark has them in the order of the join's inputs."""
    sources = execution.sources()
    return {side: sources.apply(number) for number, side in enumerate(inputs)}


def _latest(planned: Any, stream: Any, topics: SourceTopics, jvm: Any) -> OffsetsOfSide:
    """Ends of the partitions when the batch was planned; if unknown, the present ends."""
    if planned.isDefined():
        return offsets(planned.get().json(), topics)
    no_known_offsets = jvm_class(jvm, "scala.Option").empty()
    latest = stream.kafkaOffsetReader().fetchLatestOffsets(no_known_offsets)
    return offsets(json_utils(jvm).partitionOffsets(latest), topics)


def json_utils(jvm: Any) -> Any:
    """The connector's class that converts offsets from and to JSON.

    By its full name: py4j would search all jars for each part of a dotted lookup.
    """
    return jvm_class(jvm, "org.apache.spark.sql.kafka010.JsonUtils")


def event_times(observed: Mapping[Side, Mapping[str, Any]]) -> EventTimes:
    times: dict[Side, dict[int, int]] = {side: {} for side in SIDES}
    for side in SIDES:
        for entry in observed[side].get(EVENT_TIMES, ()):
            number, ms = entry["partition"], entry.get("ms")
            if ms is not None:
                times[side][number] = max(ms, times[side].get(number, ms))
    return times


def newest(observed: Mapping[Side, Mapping[str, Any]]) -> dict[Side, int]:
    times = {side: observed[side].get("event_time_max_ms") for side in SIDES}
    return {side: ms for side, ms in times.items() if ms is not None}


def offsets(text: str, topics: SourceTopics) -> dict[int, int]:
    """Offset per partition, from the JSON of Spark's Kafka source: `{"impressions":{"0":17}}`."""
    return topics.numbered(json.loads(text))
