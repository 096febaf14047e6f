"""The metrics of each partition of both topics."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric

from job.join_spec.sides import SIDES, Side
from job.protocol.reports import BrokerReport
from job.protocol.status import JobStatus
from service.metric_families import Value, gauges


def event_times(status: JobStatus) -> Iterator[Metric]:
    yield gauges(
        "partition_event_time_max_timestamp_seconds",
        "The newest event time read of the partition, in seconds since 1970; the watermark follows "
        "the oldest one of the partitions that have unread records.",
        ("side", "partition"),
        [
            ((side, str(partition)), ms / 1000)
            for side, report in status.event_times.items()
            for partition, ms in report.partitions.items()
        ],
    )


def offsets(brokers: BrokerReport) -> Iterator[Metric]:
    """As of the job's last look, also while the query rests."""
    behind = {side: brokers.side(side).behind_latest for side in SIDES}
    headroom = {side: brokers.side(side).retention_headroom for side in SIDES}
    yield gauges(
        "offsets_behind_latest",
        "Offsets between what the batches have read and the end of the partition, a few seconds "
        "ago at most; it grows while the query is paused.",
        ("side", "partition"),
        _by_partition(behind),
    )
    yield gauges(
        "retention_headroom_offsets",
        "Offsets between the oldest record that Kafka's retention has left and the next one to "
        "read; below 0 records were deleted unread.",
        ("side", "partition"),
        _by_partition(headroom),
    )


def _by_partition(
    offsets: Mapping[Side, Mapping[int, int] | None],
) -> Iterator[tuple[tuple[str, str], Value]]:
    for side, by_partition in offsets.items():
        for partition, count in (by_partition or {}).items():
            yield (side, str(partition)), count
