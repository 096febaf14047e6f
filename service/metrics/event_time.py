"""Event times and watermarks."""

from job.spec.sides import SIDES
from service.metrics.metric import Metric, Snapshot, Value, gauge


def _watermark_timestamp(snapshot: Snapshot) -> Value:
    watermark = snapshot.status.watermark
    return None if watermark is None else watermark.timestamp()


def _watermark_lag(snapshot: Snapshot) -> Value:
    watermark = snapshot.status.watermark
    return None if watermark is None else (snapshot.now - watermark).total_seconds()


def _side_watermarks(snapshot: Snapshot) -> Value:
    watermarks = {side: snapshot.status.side_watermark(side) for side in SIDES}
    return {side: at.timestamp() for side, at in watermarks.items() if at is not None}


def _held_back(snapshot: Snapshot) -> Value:
    held_back_by = snapshot.status.watermark_held_back_by
    return {side: int(side == held_back_by) for side in SIDES}


def _side_event_times(snapshot: Snapshot) -> Value:
    newest = {side: snapshot.status.side_totals(side).event_time_max_ms for side in SIDES}
    return {side: ms / 1000 for side, ms in newest.items() if ms is not None}


def _partition_event_times(snapshot: Snapshot) -> Value:
    return {
        (side, snapshot.status.partition_label(side, partition)): ms / 1000
        for side in SIDES
        if (report := snapshot.status.event_times.get(side)) is not None
        for partition, ms in report.partitions.items()
    }


EVENT_TIME: tuple[Metric[Snapshot], ...] = (
    gauge(
        "watermark_timestamp_seconds",
        "Watermark of the query, in seconds since 1970; older rows are late.",
        _watermark_timestamp,
    ),
    gauge(
        "watermark_lag_seconds",
        "Time from the watermark to the clock, in seconds; unmatched rows are emitted with this "
        "delay.",
        _watermark_lag,
    ),
    gauge(
        "side_watermark_timestamp_seconds",
        "Event time of the side minus its watermark_delay, in seconds since 1970; the watermark of "
        "the query follows the older one. With a backlog the event time is that of the partition "
        "with unread records that is furthest behind, otherwise it is the newest one.",
        _side_watermarks,
        "side",
    ),
    gauge(
        "watermark_held_back",
        "1 for the side whose event time is older or missing, 0 for the other; 0 for both if they "
        "are equal or one is idle.",
        _held_back,
        "side",
    ),
    gauge(
        "side_idle",
        "1 while the watermark of the side follows the clock (idle_after), 0 otherwise; only sides "
        "with idle_after, while the query is running.",
        lambda snapshot: {side: int(idle) for side, idle in snapshot.status.idle.items()},
        "side",
    ),
    gauge(
        "event_time_max_timestamp_seconds",
        "Newest event time since the job started, in seconds since 1970.",
        _side_event_times,
        "side",
    ),
    gauge(
        "partition_event_time_max_timestamp_seconds",
        "Newest event time read from the partition, in seconds since 1970; the watermark follows "
        "the oldest one of the partitions with unread records.",
        _partition_event_times,
        "side",
        "partition",
    ),
)
