"""The body of a scrape, which is computed for each scrape. Unknown values are not exposed.

Counters start at 0 with the job. OpenMetrics includes that time.
"""

import platform
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from job.protocol.status import JobStatus
from service.metrics.event_time import EVENT_TIME
from service.metrics.kafka import KAFKA
from service.metrics.metric import Metric, Snapshot, gauge
from service.metrics.query import QUERY
from service.metrics.records import RECORDS
from service.metrics.state import STATE
from service.metrics.table import TABLE
from service.version import VERSION

SERVICE: tuple[Metric[JobStatus | None], ...] = (
    gauge(
        "job_up",
        "1 if the job answers the service, 0 otherwise.",
        lambda status: int(status is not None),
    ),
    gauge(
        "build_info",
        "Version of Streamjoin and Python; always 1.",
        lambda _: {(VERSION, platform.python_version()): 1},
        "version",
        "python",
    ),
)
JOB: dict[str, tuple[Metric[Snapshot], ...]] = {
    "Query": QUERY,
    "Records": RECORDS,
    "Event time": EVENT_TIME,
    "Kafka": KAFKA,
    "Join state": STATE,
    "Table": TABLE,
}
METRICS: dict[str, tuple[Metric[Any], ...]] = {"Service": SERVICE, **JOB}
"""All metrics, by subject."""


def exposition(status: JobStatus | None, now: datetime, accept: str) -> tuple[bytes, str]:
    """Body and content type of a scrape, in the format of the Accept header. None: job is down."""
    encoder, content_type = _encoder(accept)
    # In the older text format each creation time would be a separate metric.
    has_creation = content_type.startswith("application/openmetrics-text")
    registry = CollectorRegistry()
    registry.register(_StatusCollector(status, now, has_creation=has_creation))
    return encoder(registry), content_type


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(accept)
    except TypeError:  # prometheus_client's error for a version that is not a number
        return choose_encoder("")


class _StatusCollector(Collector):
    def __init__(self, status: JobStatus | None, now: datetime, *, has_creation: bool) -> None:
        self._status = status
        self._now = now
        self._has_creation = has_creation

    def collect(self) -> Iterator[Family]:
        families = [metric.family(self._status) for metric in SERVICE]
        if self._status is not None:
            created = self._status.started_at.timestamp() if self._has_creation else None
            snapshot = Snapshot(self._status, self._now)
            families += [
                metric.family(snapshot, created) for metrics in JOB.values() for metric in metrics
            ]
        yield from filter(None, families)
