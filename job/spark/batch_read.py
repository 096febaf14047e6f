"""What a batch has read of both topics, in offsets and in event time, before Spark commits it.

Private API of Spark 4.3.0 and of its Kafka connector, pinned by tests/integration/test_catch_up.py.
"""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from job.event_time.partitions import EVENT_TIMES, BatchRead, EventTimes
from job.join_spec.expressions import SIDES, Side

OffsetsOfSide = Mapping[int, int]


def batch_read(
    query: StreamingQuery, jvm: Any, planned_ends: Mapping[Side, OffsetsOfSide]
) -> BatchRead:
    """Of the batch that is running, all of whose rows have been taken.

    `planned_ends`: the ends of a side's partitions when the batch was planned, where Spark was
    given lower ones. The ends of a batch that was planned before a crash are not known: the brokers
    are asked then. The answer may be further than the ends were, which only delays the watermark.
    """
    execution = query._jsq.streamingQuery()
    observed = {side: observed_metrics(execution.lastExecution(), side) for side in SIDES}
    streams = kafka_streams(execution)
    context = execution.getLatestExecutionContext()
    ends, latest = context.endOffsets(), context.latestOffsets()
    next_offsets = {side: offsets(ends.apply(streams[side]).json()) for side in SIDES}
    latest_offsets = {
        side: planned_ends.get(side) or _latest(latest.get(streams[side]), streams[side], jvm)
        for side in SIDES
    }
    return BatchRead(next_offsets, latest_offsets, event_times(observed), newest(observed))


def kafka_streams(execution: Any) -> dict[Side, Any]:
    """The KafkaMicroBatchStream of each side, in the order in which the dataflow reads them."""
    sources = execution.sources()
    return {side: sources.apply(number) for number, side in enumerate(SIDES)}


def _latest(planned: Any, stream: Any, jvm: Any) -> OffsetsOfSide:
    """The ends of the partitions when the batch was planned; as they are now if that is unknown."""
    if planned.isDefined():
        return offsets(planned.get().json())
    nothing_known = getattr(jvm, "scala.Option").empty()
    found = stream.kafkaOffsetReader().fetchLatestOffsets(nothing_known)
    return offsets(json_utils(jvm).partitionOffsets(found))


def json_utils(jvm: Any) -> Any:
    """The connector's class that reads and writes offsets as JSON.

    By its whole name: looked up part by part, each part is searched in all jars.
    """
    return getattr(jvm, "org.apache.spark.sql.kafka010.JsonUtils")


def observed_metrics(execution: Any, name: str) -> Mapping[str, Any]:
    """What the dataflow has observed under that name; empty if the side had no records."""
    found = execution.observedMetrics().get(name)
    metrics: Mapping[str, Any] = json.loads(found.get().json()) if found.isDefined() else {}
    return metrics


def event_times(observed: Mapping[Side, Mapping[str, Any]]) -> EventTimes:
    times: dict[Side, dict[int, int]] = {side: {} for side in SIDES}
    for side in SIDES:
        for entry in observed[side].get(EVENT_TIMES, ()):
            number, ms = entry["partition"], entry.get("ms")
            if ms is not None:
                times[side][number] = max(ms, times[side].get(number, ms))
    return times


def newest(observed: Mapping[Side, Mapping[str, Any]]) -> dict[Side, int]:
    found = {side: observed[side].get("event_time_max_ms") for side in SIDES}
    return {side: ms for side, ms in found.items() if ms is not None}


def offsets(text: str) -> dict[int, int]:
    """Per partition, from the JSON of Spark's Kafka source: `{"impressions":{"0":17}}`."""
    return {
        int(number): offset
        for of_topic in json.loads(text).values()
        for number, offset in of_topic.items()
    }
