"""Metric families in few words: the prefix, and one call for each kind."""

from collections.abc import Iterable, Mapping
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.samples import Sample

Value = int | float
Samples = Iterable[tuple[tuple[str, ...], Value]]


def labelled(values: Mapping[str, Value]) -> list[tuple[tuple[str], Value]]:
    return [((label,), value) for label, value in values.items()]


def gauge(name: str, text: str, value: Value) -> Metric:
    return GaugeMetricFamily(full_name(name), text, value=value)


def gauges(
    name: str,
    text: str,
    labels: tuple[str, ...],
    samples: Samples,
) -> Metric:
    family = GaugeMetricFamily(full_name(name), text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def histogram(
    name: str, text: str, bounds: Iterable[float], counts: Iterable[int], total: float
) -> Metric:
    """`counts`: of each bucket alone, the last one without bound."""
    upper = [*map(str, bounds), "+Inf"]
    buckets = list(zip(upper, accumulate(counts), strict=True))
    return HistogramMetricFamily(full_name(name), text, buckets=buckets, sum_value=total)


def counter(name: str, text: str, value: Value) -> Metric:
    """The exposition adds _total to the name."""
    return CounterMetricFamily(full_name(name), text, value=value)


def counters(
    name: str,
    text: str,
    labels: tuple[str, ...],
    samples: Samples,
) -> Metric:
    family = CounterMetricFamily(full_name(name), text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def full_name(name: str) -> str:
    return f"streamjoin_{name}"


def with_creation(family: Metric, at: float) -> Metric:
    """A counter that is lower than before was begun anew at another time: the job's start."""
    if family.type == "counter":
        family.samples = [
            told
            for sample in family.samples
            for told in (sample, Sample(f"{family.name}_created", sample.labels, at))
        ]
    elif family.type == "histogram":
        family.samples.append(Sample(f"{family.name}_created", {}, at))
    return family
