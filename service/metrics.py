"""The Prometheus metrics, made anew from one JobStatus at each scrape: nothing is left to go stale.

A value that is not known is not exposed. Counters count since the job started, which is told as
their creation time to those who ask for OpenMetrics.
"""

import platform
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from job.join_spec.sides import SIDES
from job.protocol.progress import BatchProgress
from job.protocol.reports import BrokerReport, StateCount
from job.protocol.status import JobStatus, QueryState
from job.protocol.totals import BATCH_SECONDS_BOUNDS, LATENCY_SECONDS_BOUNDS, Latencies, Totals
from service import partition_metrics
from service.metric_families import (
    Samples,
    counter,
    counters,
    full_name,
    gauge,
    gauges,
    histogram,
    labelled,
    with_creation,
)
from service.version import VERSION
from service.views import (
    live_batch,
    live_brokers,
)


def exposition(status: JobStatus | None, now: datetime, accept: str) -> tuple[bytes, str]:
    """The scrape's body and content type, in the format that `accept` asks for."""
    encoder, content_type = _encoder(accept)
    registry = CollectorRegistry()
    # In the older text format each creation time would be a metric of its own.
    created = content_type.startswith("application/openmetrics-text")
    registry.register(StatusCollector(status, now, tells_creation=created))
    return encoder(registry), content_type


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(accept)
    except TypeError:  # what prometheus_client makes of a version that is not a number
        return choose_encoder("")


class StatusCollector(Collector):
    """The families of one status; None where the job does not answer."""

    def __init__(self, status: JobStatus | None, now: datetime, *, tells_creation: bool) -> None:
        self._status = status
        self._now = now
        self._tells_creation = tells_creation

    def collect(self) -> Iterator[Metric]:
        yield from _sidecar(job_is_up=self._status is not None)
        if self._status is not None:
            created = self._status.started_at.timestamp() if self._tells_creation else None
            for family in _of_the_job(self._status, self._now):
                yield family if created is None else with_creation(family, created)


def _of_the_job(status: JobStatus, now: datetime) -> Iterator[Metric]:
    yield from _query(status)
    yield from _batches(status.totals)
    yield _latencies(status.totals.latencies)
    yield from _state_changes(status.totals)
    yield from _records(status)
    if status.last_batch is not None:
        yield from _join_state(status.last_batch)
    if status.state_count is not None:
        yield from _counted(status.state_count)
    yield from _watermark(status, now)
    yield from partition_metrics.event_times(status)
    if status.brokers is not None:
        yield from _brokers(status.brokers, is_up=live_brokers(status, now) is not None)
    if (brokers := live_brokers(status, now)) is not None:
        yield from partition_metrics.offsets(brokers)
    if (batch := live_batch(status)) is not None:
        yield from _live(batch)


def _sidecar(*, job_is_up: bool) -> Iterator[Metric]:
    version = {"version": VERSION, "python": platform.python_version()}
    yield InfoMetricFamily(
        full_name("build"), "What the sidecar was built from; always 1.", version
    )
    yield gauge("job_up", "1 where the job answers the sidecar, 0 where not.", int(job_is_up))


def _query(status: JobStatus) -> Iterator[Metric]:
    yield gauge(
        "job_start_timestamp_seconds",
        "When the job's process started and all counters began at 0, in seconds since 1970.",
        status.started_at.timestamp(),
    )
    yield gauges(
        "query_state",
        "1 for the state the query is in, 0 for the others.",
        ("state",),
        [((state.value,), int(state is status.state)) for state in QueryState],
    )
    yield counter(
        "query_restarts",
        "Starts of the query after a failure or at a user's wish.",
        status.totals.restarts,
    )
    yield counters(
        "query_failures",
        "Failures of the query by error code.",
        ("error",),
        labelled(status.totals.failures),
    )
    if status.last_progress_at is not None:
        yield gauge(
            "last_progress_timestamp_seconds",
            "When Spark last reported a batch or that there was nothing to do, "
            "in seconds since 1970.",
            status.last_progress_at.timestamp(),
        )


def _batches(totals: Totals) -> Iterator[Metric]:
    yield counter("batches", "Batches that have ended.", totals.batches)
    yield histogram(
        "batch_duration_seconds",
        "How long batches took, in seconds.",
        BATCH_SECONDS_BOUNDS,
        totals.batch_seconds_counts,
        totals.batch_seconds,
    )
    yield counters(
        "batch_phase_seconds",
        "Time spent in each phase of the batches, in seconds; trigger_execution is all of them.",
        ("phase",),
        labelled(totals.phase_seconds),
    )


def _latencies(latencies: Latencies) -> Metric:
    return histogram(
        "end_to_end_latency_seconds",
        "From Kafka's own timestamp of each input record to the end of the batch that read it, "
        "when the results it had at once are written, in seconds. An estimate within a batch: its "
        "records are taken as spread evenly between the oldest and the newest.",
        LATENCY_SECONDS_BOUNDS,
        latencies.counts,
        latencies.seconds,
    )


def _state_changes(totals: Totals) -> Iterator[Metric]:
    yield counter(
        "state_rows_updated", "Rows written to join state, both sides.", totals.state_rows_updated
    )
    yield counter(
        "state_rows_removed",
        "Rows evicted from join state behind the watermark, both sides.",
        totals.state_rows_removed,
    )
    for name, work, seconds in (
        ("update", "updating", totals.state_update_seconds),
        ("removal", "evicting from", totals.state_removal_seconds),
        ("commit", "committing", totals.state_commit_seconds),
    ):
        yield counter(
            f"state_{name}_seconds",
            f"Time spent {work} join state, in seconds, summed over the state partitions.",
            seconds,
        )


def _records(status: JobStatus) -> Iterator[Metric]:
    totals = status.totals
    sides = {side: status.side_totals(side) for side in SIDES}
    results = {"output": totals.results_left_out}
    yield counter(
        "output_records",
        "Records written to the output. Results per input record: its rate divided by the summed "
        "rates of streamjoin_input_records_total.",
        totals.output_records,
    )
    yield counter(
        "late_rows",
        "Rows dropped because their event time was behind the watermark, both sides.",
        totals.late_rows,
    )
    yield counters(
        "dead_letter_records",
        "Records written to the dead-letter topic, by reason.",
        ("side", "reason"),
        _by_side_and_reason(totals.dead_letters),
    )
    yield counters(
        "transactions",
        "Transactions of the output by result: committed, skipped (an earlier attempt had "
        "committed), aborted, fenced by another job, unknown (the answer to a commit was lost).",
        ("result",),
        labelled(totals.transactions),
    )
    yield counters(
        "input_records",
        "Records read from the topic, readable or not.",
        ("side",),
        labelled({side: total.records for side, total in sides.items()}),
    )
    yield counters(
        "null_key_records",
        "Records with a null in their key.",
        ("side",),
        labelled({side: total.null_keys for side, total in sides.items()}),
    )
    yield counters(
        "bad_records",
        "Records and results (side output) that were left out as bad, by reason.",
        ("side", "reason"),
        _by_side_and_reason(
            {**{side: total.bad_records for side, total in sides.items()}, **results}
        ),
    )
    yield gauges(
        "event_time_max_timestamp_seconds",
        "The newest event time since the job started, in seconds since 1970.",
        ("side",),
        [
            ((side,), total.event_time_max_ms / 1000)
            for side, total in sides.items()
            if total.event_time_max_ms is not None
        ],
    )


def _by_side_and_reason(counts: Mapping[str, Mapping[str, int]]) -> Samples:
    return [((side, reason), n) for side, found in counts.items() for reason, n in found.items()]


def _join_state(last: BatchProgress) -> Iterator[Metric]:
    if last.state_rows is not None:
        yield gauge(
            "state_rows",
            "Rows held in join state, both sides. After a restart not before they were counted.",
            last.state_rows,
        )


def _counted(state_count: StateCount) -> Iterator[Metric]:
    """Read from the checkpoint one by one, every now and then."""
    yield gauges(
        "state_count_rows",
        "Rows of the side held in join state when they were last counted, at "
        "streamjoin_state_count_timestamp_seconds.",
        ("side",),
        [((side,), state_count.side(side).rows) for side in SIDES],
    )
    yield gauges(
        "state_count_unmatched_rows",
        "Rows of the side that waited for a match when they were last counted; only of sides "
        "whose unmatched rows the join type asks for.",
        ("side",),
        [
            ((side,), rows)
            for side in SIDES
            if (rows := state_count.side(side).unmatched_rows) is not None
        ],
    )
    yield gauge(
        "state_count_timestamp_seconds",
        "When the rows in join state were last counted, in seconds since 1970.",
        state_count.counted_at.timestamp(),
    )
    yield gauge(
        "state_count_duration_seconds",
        "How long the last count of the rows in join state took, in seconds.",
        state_count.duration_seconds,
    )


def _watermark(status: JobStatus, now: datetime) -> Iterator[Metric]:
    watermark = status.watermark
    if watermark is not None:
        yield gauge(
            "watermark_timestamp_seconds",
            "The query's watermark, in seconds since 1970; rows older than it are late.",
            watermark.timestamp(),
        )
        yield gauge(
            "watermark_lag_seconds",
            "How far the watermark is behind the clock, in seconds.",
            (now - watermark).total_seconds(),
        )
    yield gauges(
        "side_watermark_timestamp_seconds",
        "The side's event time minus its watermark_delay, in seconds since 1970; the query's "
        "watermark follows the older one. With a backlog it is the event time of the partition "
        "with unread records that is furthest behind, otherwise the newest one.",
        ("side",),
        [
            ((side,), at.timestamp())
            for side in SIDES
            if (at := status.side_watermark(side)) is not None
        ],
    )
    yield gauges(
        "watermark_held_back",
        "1 for the side that holds the watermark back, being behind the other or silent since the "
        "job started; 0 for both where they are alike, or one is idle.",
        ("side",),
        [((side,), int(side == status.watermark_held_back_by)) for side in SIDES],
    )
    yield gauges(
        "side_idle",
        "1 for a side whose event time follows the clock, being silent, 0 for one that is heard "
        "of; only sides with idle_after, while the query runs.",
        ("side",),
        [((side,), int(is_idle)) for side, is_idle in status.idle.items()],
    )


def _brokers(report: BrokerReport, *, is_up: bool) -> Iterator[Metric]:
    yield gauge(
        "brokers_up", "1 where the brokers answered the job's last look, 0 where not.", int(is_up)
    )
    if report.answered_at is not None:
        yield gauge(
            "brokers_answer_timestamp_seconds",
            "When the brokers last answered the job's look at them, in seconds since 1970.",
            report.answered_at.timestamp(),
        )


def _live(last: BatchProgress) -> Iterator[Metric]:
    """What holds only while the query runs."""
    yield gauge(
        "state_memory_bytes",
        "Memory used by the state stores as of the last batch, in bytes.",
        last.state_memory_bytes,
    )
    yield gauges(
        "state_custom",
        "The state store's own measures of the last batch, under Spark's names; "
        "those that end in Latency or Ms are in milliseconds.",
        ("name",),
        labelled(last.state_custom),
    )
    yield gauges(
        "last_batch_input_records",
        "Records that the last batch read of the side.",
        ("side",),
        labelled({"left": last.left.records, "right": last.right.records}),
    )
    yield gauge(
        "last_batch_output_records", "Records that the last batch wrote.", last.output_records
    )
