"""Records read, results written, and what was dropped."""

from collections.abc import Mapping

from job.protocol.latency import LATENCY_SECONDS_BOUNDS
from job.spec.sides import SIDES
from service.metrics.metric import Buckets, Metric, Snapshot, Value, counter, gauge, histogram


def _input(snapshot: Snapshot) -> Value:
    return {side: snapshot.status.side_totals(side).records for side in SIDES}


def _duplicates(snapshot: Snapshot) -> Value:
    return {side: snapshot.status.side_totals(side).duplicates for side in SIDES}


def _filtered(snapshot: Snapshot) -> Value:
    return {side: snapshot.status.side_totals(side).filtered_records for side in SIDES}


def _null_keys(snapshot: Snapshot) -> Value:
    return {side: snapshot.status.side_totals(side).null_keys for side in SIDES}


def _skipped(snapshot: Snapshot) -> Value:
    return {side: snapshot.status.side_totals(side).skipped_records for side in SIDES}


def _bad(snapshot: Snapshot) -> Value:
    status = snapshot.status
    counts: dict[str, dict[str, int]] = {"output": status.totals.results_left_out}
    counts |= {side: status.side_totals(side).bad_records for side in SIDES}
    return _by_side_and_reason(counts)


def _dead_letters(snapshot: Snapshot) -> Value:
    return _by_side_and_reason(snapshot.status.totals.dead_letters)


def _by_side_and_reason(counts: Mapping[str, Mapping[str, int]]) -> Value:
    return {
        (side, reason): count
        for side, by_reason in counts.items()
        for reason, count in by_reason.items()
    }


def _latencies(snapshot: Snapshot) -> Value:
    latencies = snapshot.status.totals.latencies
    return Buckets(LATENCY_SECONDS_BOUNDS, latencies.counts, latencies.seconds)


RECORDS: tuple[Metric[Snapshot], ...] = (
    counter("input_records", "Records read from the topic, readable or not.", _input, "side"),
    counter(
        "output_records", "Results written.", lambda snapshot: snapshot.status.totals.output_records
    ),
    counter(
        "unmatched_results",
        "Results of unmatched rows, which are also in output_records.",
        lambda snapshot: snapshot.status.totals.unmatched_results,
    ),
    counter(
        "filtered_results",
        "Results that output.filter dropped.",
        lambda snapshot: snapshot.status.totals.filtered_results,
    ),
    counter(
        "late_rows",
        "Rows dropped because their event time was behind the watermark, both sides.",
        lambda snapshot: snapshot.status.totals.late_rows,
    ),
    counter(
        "kept_back_results",
        "Results kept back after a change of the join, because the old query has written them.",
        lambda snapshot: snapshot.status.totals.kept_back_results,
    ),
    gauge(  # a counter would begin with the job
        "skipped_records",
        "Records that Kafka deleted before they were read, and that `checkpoint skip-gap` has "
        "skipped, since the checkpoint began.",
        _skipped,
        "side",
    ),
    counter(
        "bad_records",
        "Bad records by reason; side `output`: results that could not be written.",
        _bad,
        "side",
        "reason",
    ),
    counter("filtered_records", "Records that the side's filter dropped.", _filtered, "side"),
    counter("null_key_records", "Records with a null in their key.", _null_keys, "side"),
    counter(
        "duplicate_rows",
        "Rows dropped as duplicates of an earlier row (`deduplicate`).",
        _duplicates,
        "side",
    ),
    counter(
        "dead_letter_records",
        "Records written to the dead-letter topic, by reason.",
        _dead_letters,
        "side",
        "reason",
    ),
    counter(
        "transactions",
        "Output transactions by result: committed, skipped (an earlier attempt had committed), "
        "aborted, fenced by another job.",
        lambda snapshot: snapshot.status.totals.transactions,
        "result",
    ),
    histogram(
        "end_to_end_latency_seconds",
        "From the Kafka timestamp of a record to the end of the batch that read it, in seconds; "
        "interpolated between the oldest and the newest record of the batch, without batches that "
        "read records again after a change. With engine real_time to the end of the interval, "
        "although most results are visible before.",
        _latencies,
    ),
)
