"""A metric: its name, type, labels and help text, and how its value is read.

The definitions are values, so that docs/metrics.md is generated from them (service/reference.py).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any, Generic, Literal, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from job.protocol.status import JobStatus

Number = int | float


@dataclass(frozen=True)
class Snapshot:
    """Source of the job's metrics."""

    status: JobStatus
    now: datetime


@dataclass(frozen=True)
class Buckets:
    """The value of a histogram."""

    bounds: tuple[float, ...]
    counts: list[int]
    """Observations of each bucket alone, the last one unbounded."""
    total: float
    """Sum of the observations."""


Value = Number | Mapping[Any, Number] | Buckets | None
"""A number; a number per label value (a tuple for several labels); the buckets of a histogram.
None: unknown, not exposed."""

Source = TypeVar("Source")


@dataclass(frozen=True)
class Metric(Generic[Source]):
    kind: Literal["gauge", "counter", "histogram"]
    name: str
    """The name in the exposition."""
    help: str
    read: Callable[[Source], Value]
    labels: tuple[str, ...] = ()

    def family(self, source: Source, created: float | None = None) -> Family | None:
        """The samples. None: the value is unknown.

        `created`: start time of the counters, in seconds since 1970. None: without start times.
        """
        value = self.read(source)
        if value is None:
            return None
        if isinstance(value, Buckets):
            family = self._histogram(value)
        else:
            types = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
            family = types[self.kind](self.name, self.help, labels=self.labels)
            samples = value if isinstance(value, Mapping) else {(): value}
            for labels, number in samples.items():
                family.add_metric((labels,) if isinstance(labels, str) else labels, number)
        if created is not None and self.kind != "gauge":
            family.samples = list(_with_creation(family, created))
        return family

    def _histogram(self, value: Buckets) -> Family:
        upper = [*map(str, value.bounds), "+Inf"]
        buckets = list(zip(upper, accumulate(value.counts), strict=True))
        return HistogramMetricFamily(self.name, self.help, buckets=buckets, sum_value=value.total)


def _with_creation(family: Family, at: float) -> Iterator[Sample]:
    """With the start time, Prometheus recognizes a counter that starts again at 0."""
    is_histogram = family.type == "histogram"
    for sample in family.samples:
        yield sample
        if not is_histogram:  # OpenMetrics groups the samples by their labels
            yield Sample(f"{family.name}_created", sample.labels, at)
    if is_histogram:
        yield Sample(f"{family.name}_created", {}, at)


def gauge(name: str, text: str, read: Callable[[Source], Value], *labels: str) -> Metric[Source]:
    return Metric("gauge", f"streamjoin_{name}", text, read, labels)


def counter(name: str, text: str, read: Callable[[Source], Value], *labels: str) -> Metric[Source]:
    return Metric("counter", f"streamjoin_{name}_total", text, read, labels)


def histogram(name: str, text: str, read: Callable[[Source], Value]) -> Metric[Source]:
    return Metric("histogram", f"streamjoin_{name}", text, read, ("le",))
