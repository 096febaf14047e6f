"""Brokers and offsets, as of the job's last poll of the brokers, also while the query is paused."""

from collections.abc import Mapping

from job.api.freshness import live_brokers
from job.spec.sides import SIDES, Side
from service.metrics.metric import Metric, Snapshot, Value, gauge


def _are_up(snapshot: Snapshot) -> Value:
    if snapshot.status.brokers is None:
        return None
    return int(live_brokers(snapshot.status, snapshot.now) is not None)


def _answered_at(snapshot: Snapshot) -> Value:
    report = snapshot.status.brokers
    at = None if report is None else report.answered_at
    return None if at is None else at.timestamp()


def _behind_latest(snapshot: Snapshot) -> Value:
    brokers = live_brokers(snapshot.status, snapshot.now)
    if brokers is None:
        return None
    offsets = {side: brokers.side(side).behind_latest for side in SIDES}
    return _by_partition(snapshot, offsets)


def _retention_headroom(snapshot: Snapshot) -> Value:
    brokers = live_brokers(snapshot.status, snapshot.now)
    if brokers is None:
        return None
    offsets = {side: brokers.side(side).retention_headroom for side in SIDES}
    return _by_partition(snapshot, offsets)


def _by_partition(snapshot: Snapshot, offsets: Mapping[Side, Mapping[int, int] | None]) -> Value:
    return {
        (side, snapshot.status.partition_label(side, partition)): count
        for side, partitions in offsets.items()
        for partition, count in (partitions or {}).items()
    }


KAFKA: tuple[Metric[Snapshot], ...] = (
    gauge("brokers_up", "1 if the brokers answered the job's last poll, 0 otherwise.", _are_up),
    gauge(
        "brokers_answer_timestamp_seconds",
        "Last answer of the brokers to the job's poll, in seconds since 1970.",
        _answered_at,
    ),
    gauge(
        "offsets_behind_latest",
        "Unread offsets of the partition, also while the query is paused.",
        _behind_latest,
        "side",
        "partition",
    ),
    gauge(
        "retention_headroom_offsets",
        "Offsets between the oldest record that Kafka retains and the next one to read; below 0: "
        "records were deleted before they were read.",
        _retention_headroom,
        "side",
        "partition",
    ),
)
