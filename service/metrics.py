"""The Prometheus metrics, made anew from one JobStatus at each scrape: nothing is left to go stale.

A value that is not known is not exposed; counters count since the job started.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from job.progress import (
    BATCH_SECONDS_BOUNDS,
    BatchProgress,
    JobStatus,
    QueryState,
    SideProgress,
    SideTotals,
    Totals,
)
from service.version import VERSION
from service.views import live_batch, offsets_behind_latest

Value = int | float


def exposition(status: JobStatus | None, now: datetime, accept: str) -> tuple[bytes, str]:
    """The scrape's body and content type, in the format that `accept` asks for."""
    registry = CollectorRegistry()
    registry.register(StatusCollector(status, now))
    encoder, content_type = _encoder(accept)
    return encoder(registry), content_type


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(accept)
    except TypeError:  # what prometheus_client makes of a version that is not a number
        return choose_encoder("")


class StatusCollector(Collector):
    """The families of one status; None where the job does not answer."""

    def __init__(self, status: JobStatus | None, now: datetime) -> None:
        self._status = status
        self._now = now

    def collect(self) -> Iterator[Metric]:
        yield from _sidecar(job_is_up=self._status is not None)
        if self._status is not None:
            yield from _query(self._status)
            yield from _batches(self._status.totals)
            yield from _state_changes(self._status.totals)
            yield from _records(self._status.totals)
        if self._status is not None and self._status.last_batch is not None:
            yield from _join_state(self._status.last_batch)
            yield from _watermark(self._status.last_batch, self._now)
        live = live_batch(self._status) if self._status is not None else None
        if live is not None:
            yield from _live(live)


def _sidecar(*, job_is_up: bool) -> Iterator[Metric]:
    version = {"version": VERSION, "python": platform.python_version()}
    yield InfoMetricFamily(_name("build"), "What the sidecar was built from; always 1.", version)
    yield _gauge("job_up", "1 where the job answers the sidecar, 0 where not.", int(job_is_up))


def _query(status: JobStatus) -> Iterator[Metric]:
    yield _gauges(
        "query_state",
        "1 for the state the query is in, 0 for the others.",
        ("state",),
        [((state.value,), int(state is status.state)) for state in QueryState],
    )
    yield _counter(
        "query_restarts",
        "Starts of the query after a failure or at a user's wish.",
        status.totals.restarts,
    )
    yield _counters(
        "query_failures",
        "Failures of the query by error code.",
        ("error",),
        _labelled(status.totals.failures),
    )
    if status.last_progress_at is not None:
        yield _gauge(
            "last_progress_timestamp_seconds",
            "When Spark last reported a batch or that there was nothing to do, "
            "in seconds since 1970.",
            status.last_progress_at.timestamp(),
        )


def _batches(totals: Totals) -> Iterator[Metric]:
    bounds = [*map(str, BATCH_SECONDS_BOUNDS), "+Inf"]
    buckets = list(zip(bounds, accumulate(totals.batch_seconds_counts), strict=True))
    yield _counter("batches", "Batches that have ended.", totals.batches)
    yield HistogramMetricFamily(
        _name("batch_duration_seconds"),
        "How long batches took, in seconds.",
        buckets=buckets,
        sum_value=totals.batch_seconds,
    )
    yield _counters(
        "batch_phase_seconds",
        "Time spent in each phase of the batches, in seconds; trigger_execution is all of them.",
        ("phase",),
        _labelled(totals.phase_seconds),
    )


def _state_changes(totals: Totals) -> Iterator[Metric]:
    yield _counter(
        "state_rows_updated", "Rows written to join state, both sides.", totals.state_rows_updated
    )
    yield _counter(
        "state_rows_removed",
        "Rows evicted from join state behind the watermark, both sides.",
        totals.state_rows_removed,
    )
    for name, work, seconds in (
        ("update", "updating", totals.state_update_seconds),
        ("removal", "evicting from", totals.state_removal_seconds),
        ("commit", "committing", totals.state_commit_seconds),
    ):
        yield _counter(
            f"state_{name}_seconds",
            f"Time spent {work} join state, in seconds, summed over the state partitions.",
            seconds,
        )


def _records(totals: Totals) -> Iterator[Metric]:
    sides = {"left": totals.left, "right": totals.right}
    yield _counter("output_records", "Records written to the output.", totals.output_records)
    yield _counter(
        "late_records",
        "Rows dropped because their event time was behind the watermark, both sides.",
        totals.late_records,
    )
    yield _counters(
        "input_records",
        "Records read from the topic, readable or not.",
        ("side",),
        _labelled({side: total.records for side, total in sides.items()}),
    )
    yield _counters(
        "null_key_records",
        "Records with a null in their key.",
        ("side",),
        _labelled({side: total.null_keys for side, total in sides.items()}),
    )
    yield _counters(
        "bad_records",
        "Records that could not be read, by reason.",
        ("side", "reason"),
        [
            ((side, reason), count)
            for side, total in sides.items()
            for reason, count in total.bad_records.items()
        ],
    )
    yield _event_time_max(sides)


def _event_time_max(sides: Mapping[str, SideTotals]) -> Metric:
    return _gauges(
        "event_time_max_timestamp_seconds",
        "The newest event time since the job started, in seconds since 1970.",
        ("side",),
        [
            ((side,), total.event_time_max_ms / 1000)
            for side, total in sides.items()
            if total.event_time_max_ms is not None
        ],
    )


def _join_state(last: BatchProgress) -> Iterator[Metric]:
    yield _gauge(
        "state_rows",
        "Rows held in join state as of the last batch, the sum of both sides: Spark does not "
        "report them apart. Rows of one side with equal key and event time count once.",
        last.state_rows,
    )


def _watermark(last: BatchProgress, now: datetime) -> Iterator[Metric]:
    if last.watermark_ms is not None:
        watermark = last.watermark_ms / 1000
        yield _gauge(
            "watermark_timestamp_seconds",
            "The query's watermark, in seconds since 1970; rows older than it are late.",
            watermark,
        )
        yield _gauge(
            "watermark_lag_seconds",
            "How far the watermark is behind the clock, in seconds.",
            now.timestamp() - watermark,
        )


def _live(last: BatchProgress) -> Iterator[Metric]:
    """What holds only while the query runs."""
    yield _gauge(
        "state_memory_bytes",
        "Memory used by the state stores as of the last batch, in bytes.",
        last.state_memory_bytes,
    )
    yield _gauges(
        "state_custom",
        "The state store's own measures of the last batch, under Spark's names; "
        "those that end in Latency or Ms are in milliseconds.",
        ("name",),
        _labelled(last.state_custom),
    )
    yield _gauges(
        "offsets_behind_latest",
        "Offsets between the end of the last batch and the end of the partition at its start.",
        ("side", "partition"),
        [*_behind("left", last.left), *_behind("right", last.right)],
    )


def _behind(side: str, last: SideProgress) -> Iterator[tuple[tuple[str, str], Value]]:
    for partition, offsets in (offsets_behind_latest(last) or {}).items():
        yield (side, str(partition)), offsets


def _labelled(values: Mapping[str, Value]) -> list[tuple[tuple[str], Value]]:
    return [((label,), value) for label, value in values.items()]


def _gauge(name: str, text: str, value: Value) -> Metric:
    return GaugeMetricFamily(_name(name), text, value=value)


def _gauges(
    name: str,
    text: str,
    labels: tuple[str, ...],
    samples: Iterable[tuple[tuple[str, ...], Value]],
) -> Metric:
    family = GaugeMetricFamily(_name(name), text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _counter(name: str, text: str, value: Value) -> Metric:
    """The exposition adds _total to the name."""
    return CounterMetricFamily(_name(name), text, value=value)


def _counters(
    name: str,
    text: str,
    labels: tuple[str, ...],
    samples: Iterable[tuple[tuple[str, ...], Value]],
) -> Metric:
    family = CounterMetricFamily(_name(name), text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _name(name: str) -> str:
    return f"streamjoin_{name}"
