"""State, failures and batches of the query."""

from job.api.freshness import live_batch
from job.protocol.status import Phase, QueryState
from job.protocol.totals import BATCH_SECONDS_BOUNDS
from service.metrics.metric import Buckets, Metric, Snapshot, Value, counter, gauge, histogram


def _last_progress(snapshot: Snapshot) -> Value:
    at = snapshot.status.last_progress_at
    return None if at is None else at.timestamp()


def _durations(snapshot: Snapshot) -> Value:
    totals = snapshot.status.totals
    return Buckets(BATCH_SECONDS_BOUNDS, totals.batch_seconds_counts, totals.batch_seconds)


def _phases(snapshot: Snapshot) -> Value:
    current = snapshot.status.phase
    return None if current is None else {phase.value: int(phase is current) for phase in Phase}


def _lineage_events(snapshot: Snapshot) -> Value:
    events = snapshot.status.lineage_events
    return None if events is None else dict(events)


def _last_input(snapshot: Snapshot) -> Value:
    last = live_batch(snapshot.status)
    return None if last is None else {"left": last.left.records, "right": last.right.records}


def _last_output(snapshot: Snapshot) -> Value:
    last = live_batch(snapshot.status)
    return None if last is None else last.output_records


QUERY: tuple[Metric[Snapshot], ...] = (
    gauge(
        "job_start_timestamp_seconds",
        "Start of the job's process, at which all counters start at 0, in seconds since 1970.",
        lambda snapshot: snapshot.status.started_at.timestamp(),
    ),
    gauge(
        "query_state",
        "1 for the current state of the query, 0 for the others.",
        lambda snapshot: {state.value: int(state is snapshot.status.state) for state in QueryState},
        "state",
    ),
    gauge(
        "query_phase",
        "1 for the current phase of the query, 0 for the others: catch_up in micro-batches, "
        "real_time in intervals, loading_table while a table is read before its stream. Only while "
        "a query with engine real_time is running, or reads a table.",
        _phases,
        "phase",
    ),
    counter(
        "query_restarts",
        "Starts of the query after a failure or a restart command.",
        lambda snapshot: snapshot.status.totals.restarts,
    ),
    counter(
        "query_failures",
        "Failures of the query, by error code.",
        lambda snapshot: snapshot.status.totals.failures,
        "error",
    ),
    gauge(
        "last_progress_timestamp_seconds",
        "Last progress: a batch, an idle trigger, or with engine real_time a heartbeat of the "
        "tasks of an interval, in seconds since 1970.",
        _last_progress,
    ),
    counter("batches", "Finished batches.", lambda snapshot: snapshot.status.totals.batches),
    histogram("batch_duration_seconds", "Duration of the batches, in seconds.", _durations),
    counter(
        "batch_phase_seconds",
        "Duration of each phase of the batches, in seconds; trigger_execution is the whole batch.",
        lambda snapshot: snapshot.status.totals.phase_seconds,
        "phase",
    ),
    counter(
        "lineage_events",
        "OpenLineage events by result: sent, or dropped because the endpoint did not accept them. "
        "Absent without an endpoint.",
        _lineage_events,
        "result",
    ),
    gauge(
        "last_batch_input_records",
        "Records that the last batch read, while the query is running.",
        _last_input,
        "side",
    ),
    gauge(
        "last_batch_output_records",
        "Results that the last batch wrote, while the query is running.",
        _last_output,
    ),
)
