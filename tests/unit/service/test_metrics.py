"""Names, values and silences of the scrape: what is not known is not said."""

from datetime import timedelta

import pytest
from prometheus_client import openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_of
from prometheus_client.parser import text_string_to_metric_families

from job.protocol.reasons import REASONS
from job.protocol.reports import BrokerReport, SideOffsets
from job.protocol.status import JobStatus, QueryState
from job.protocol.totals import BATCH_SECONDS_BOUNDS, TRANSACTION_RESULTS
from service.metrics import exposition
from tests.unit.service.builders import (
    NOW,
    NOW_SECONDS,
    batch,
    broker_report,
    side,
    status,
    status_after,
)

PARTITION = "streamjoin_partition_event_time_max_timestamp_seconds"
# All there are, with type and labels: the contract with dashboards and alerts.
TABLE = {
    ("streamjoin_brokers_answer_timestamp_seconds", "gauge", ""),
    ("streamjoin_brokers_up", "gauge", ""),
    ("streamjoin_end_to_end_latency_seconds", "histogram", "le"),
    ("streamjoin_job_start_timestamp_seconds", "gauge", ""),
    ("streamjoin_last_batch_input_records", "gauge", "side"),
    ("streamjoin_last_batch_output_records", "gauge", ""),
    (PARTITION, "gauge", "partition side"),
    ("streamjoin_retention_headroom_offsets", "gauge", "partition side"),
    ("streamjoin_side_idle", "gauge", "side"),
    ("streamjoin_side_watermark_timestamp_seconds", "gauge", "side"),
    ("streamjoin_state_count_duration_seconds", "gauge", ""),
    ("streamjoin_state_count_rows", "gauge", "side"),
    ("streamjoin_state_count_timestamp_seconds", "gauge", ""),
    ("streamjoin_state_count_unmatched_rows", "gauge", "side"),
    ("streamjoin_watermark_held_back", "gauge", "side"),
    ("streamjoin_batch_duration_seconds", "histogram", "le"),
    ("streamjoin_batch_phase_seconds_total", "counter", "phase"),
    ("streamjoin_batches_total", "counter", ""),
    ("streamjoin_bad_records_total", "counter", "reason side"),
    ("streamjoin_dead_letter_records_total", "counter", "reason side"),
    ("streamjoin_build_info", "gauge", "python version"),
    ("streamjoin_event_time_max_timestamp_seconds", "gauge", "side"),
    ("streamjoin_input_records_total", "counter", "side"),
    ("streamjoin_job_up", "gauge", ""),
    ("streamjoin_last_progress_timestamp_seconds", "gauge", ""),
    ("streamjoin_late_rows_total", "counter", ""),
    ("streamjoin_null_key_records_total", "counter", "side"),
    ("streamjoin_offsets_behind_latest", "gauge", "partition side"),
    ("streamjoin_output_records_total", "counter", ""),
    ("streamjoin_query_failures_total", "counter", "error"),
    ("streamjoin_query_restarts_total", "counter", ""),
    ("streamjoin_query_state", "gauge", "state"),
    ("streamjoin_state_commit_seconds_total", "counter", ""),
    ("streamjoin_state_custom", "gauge", "name"),
    ("streamjoin_state_memory_bytes", "gauge", ""),
    ("streamjoin_state_removal_seconds_total", "counter", ""),
    ("streamjoin_state_rows", "gauge", ""),
    ("streamjoin_state_rows_removed_total", "counter", ""),
    ("streamjoin_state_rows_updated_total", "counter", ""),
    ("streamjoin_state_update_seconds_total", "counter", ""),
    ("streamjoin_transactions_total", "counter", "result"),
    ("streamjoin_watermark_lag_seconds", "gauge", ""),
    ("streamjoin_watermark_timestamp_seconds", "gauge", ""),
}
NAMES = {name for name, _, _ in TABLE}
# Of the last batch; the others can be told before there was one.
OF_A_BATCH = {
    PARTITION,
    "streamjoin_last_batch_input_records",
    "streamjoin_last_batch_output_records",
    "streamjoin_side_idle",
    "streamjoin_side_watermark_timestamp_seconds",
    "streamjoin_last_progress_timestamp_seconds",
    "streamjoin_batch_phase_seconds_total",
    "streamjoin_event_time_max_timestamp_seconds",
    "streamjoin_state_custom",
    "streamjoin_state_memory_bytes",
    "streamjoin_state_rows",
    "streamjoin_watermark_lag_seconds",
    "streamjoin_watermark_timestamp_seconds",
}
OF_THE_BROKERS = {
    "streamjoin_brokers_answer_timestamp_seconds",
    "streamjoin_brokers_up",
    "streamjoin_offsets_behind_latest",
    "streamjoin_retention_headroom_offsets",
}
OF_A_STATE_COUNT = {name for name in NAMES if "state_count" in name}
WHILE_RUNNING = {
    "streamjoin_last_batch_input_records",
    "streamjoin_last_batch_output_records",
    "streamjoin_state_custom",
    "streamjoin_state_memory_bytes",
}
FULL = status_after(batch()).model_copy(
    update={"totals": status_after(batch()).totals.with_failure("broker").with_restart()}
)


def test_the_scrape_has_the_metrics_of_the_table_and_no_others() -> None:
    found = {
        (name(family), family.type, " ".join(sorted(labels(family)))) for family in families(FULL)
    }

    assert TABLE == found


def test_every_metric_says_what_it_is_and_in_which_unit() -> None:
    for family in families(FULL):
        assert family.documentation.endswith("."), family.name
        if "_seconds" in family.name:
            assert "seconds" in family.documentation, family.name
        if "_bytes" in family.name:
            assert "bytes" in family.documentation, family.name


def test_values_are_those_of_the_status() -> None:
    values = samples(FULL)

    assert {
        "streamjoin_batches_total": 1,
        "streamjoin_brokers_answer_timestamp_seconds": NOW_SECONDS,
        "streamjoin_brokers_up": 1,
        "streamjoin_job_start_timestamp_seconds": NOW_SECONDS,
        "streamjoin_last_batch_input_records{side=left}": 20,
        "streamjoin_last_batch_input_records{side=right}": 10,
        "streamjoin_last_batch_output_records": 30,
        f"{PARTITION}{{partition=1,side=left}}": NOW_SECONDS - 2.5,
        f"{PARTITION}{{partition=1,side=right}}": NOW_SECONDS - 4,
        "streamjoin_retention_headroom_offsets{partition=0,side=left}": 80,
        "streamjoin_retention_headroom_offsets{partition=0,side=right}": 98,
        "streamjoin_retention_headroom_offsets{partition=1,side=left}": 60,
        "streamjoin_retention_headroom_offsets{partition=1,side=right}": 0,
        "streamjoin_side_idle{side=right}": 0,
        "streamjoin_side_watermark_timestamp_seconds{side=left}": NOW_SECONDS - 12.5,
        "streamjoin_side_watermark_timestamp_seconds{side=right}": NOW_SECONDS - 15.5,
        "streamjoin_state_count_duration_seconds": 0.75,
        "streamjoin_state_count_rows{side=left}": 160,
        "streamjoin_state_count_rows{side=right}": 240,
        "streamjoin_state_count_timestamp_seconds": NOW_SECONDS,
        "streamjoin_state_count_unmatched_rows{side=left}": 42,
        "streamjoin_watermark_held_back{side=left}": 0,
        "streamjoin_watermark_held_back{side=right}": 1,
        "streamjoin_event_time_max_timestamp_seconds{side=left}": NOW_SECONDS - 2.5,
        "streamjoin_event_time_max_timestamp_seconds{side=right}": NOW_SECONDS - 4,
        "streamjoin_input_records_total{side=left}": 20,
        "streamjoin_input_records_total{side=right}": 10,
        "streamjoin_job_up": 1,
        "streamjoin_last_progress_timestamp_seconds": NOW_SECONDS,
        "streamjoin_late_rows_total": 2,
        "streamjoin_null_key_records_total{side=left}": 1,
        "streamjoin_null_key_records_total{side=right}": 0,
        "streamjoin_offsets_behind_latest{partition=0,side=left}": 10,
        "streamjoin_offsets_behind_latest{partition=0,side=right}": 2,
        "streamjoin_offsets_behind_latest{partition=1,side=left}": 5,
        "streamjoin_offsets_behind_latest{partition=1,side=right}": 0,
        "streamjoin_output_records_total": 30,
        "streamjoin_query_failures_total{error=broker}": 1,
        "streamjoin_query_restarts_total": 1,
        "streamjoin_state_commit_seconds_total": 0.25,
        "streamjoin_state_custom{name=rocksdbGetCount}": 12,
        "streamjoin_state_memory_bytes": 1_000_000,
        "streamjoin_state_removal_seconds_total": 0.0625,
        "streamjoin_state_rows": 400,
        "streamjoin_state_rows_removed_total": 10,
        "streamjoin_state_rows_updated_total": 50,
        "streamjoin_state_update_seconds_total": 0.125,
        "streamjoin_watermark_lag_seconds": 15.5,
        "streamjoin_watermark_timestamp_seconds": NOW_SECONDS - 15.5,
        **dict.fromkeys(
            (f"streamjoin_transactions_total{{result={result}}}" for result in TRANSACTION_RESULTS),
            0,
        ),
    } == without(values, "batch_d", "batch_p", "bad_r", "dead_l", "query_state", "build", "end_to")


def test_counters_are_sums_over_batches_and_gauges_are_of_the_last_one() -> None:
    values = samples(
        status_after(
            batch(output_records=30, state_rows=400), batch(output_records=5, state_rows=300)
        )
    )

    assert 35 == values["streamjoin_output_records_total"]
    assert 300 == values["streamjoin_state_rows"]
    assert 0.5 == values["streamjoin_batch_phase_seconds_total{phase=add_batch}"]


def test_bad_records_are_told_by_side_and_reason_zeros_included() -> None:
    one_side = status_after(batch(left=side(bad_records={"malformed_json": 4, "tombstone": 0})))

    none = {
        f"streamjoin_bad_records_total{{reason={reason},side={side}}}": 0
        for reason in REASONS
        for side in ("left", "right")
    }
    assert {
        **none,
        "streamjoin_bad_records_total{reason=value_too_large,side=output}": 0,
        "streamjoin_bad_records_total{reason=expression_failed,side=output}": 0,
        "streamjoin_bad_records_total{reason=malformed_json,side=left}": 4,
        "streamjoin_bad_records_total{reason=malformed_json,side=right}": 3,
    } == only(samples(one_side), "bad_records")


def test_batch_durations_are_a_cumulative_histogram() -> None:
    durations = (0.05, 0.1, 0.3, 400.0)
    values = samples(status_after(*(batch(duration_seconds=each) for each in durations)))

    def bucket(bound: str) -> float:
        return values[f"streamjoin_batch_duration_seconds_bucket{{le={bound}}}"]

    assert [2.0, 2.0, 3.0, 3.0, 4.0] == [*map(bucket, ("0.1", "0.25", "0.5", "300.0", "+Inf"))]
    assert 4 == values["streamjoin_batch_duration_seconds_count"]
    assert sum(durations) == values["streamjoin_batch_duration_seconds_sum"]
    assert len(BATCH_SECONDS_BOUNDS) + 3 == len(only(values, "batch_duration_seconds"))


@pytest.mark.parametrize("state", list(QueryState))
def test_exactly_one_state_is_one(state: QueryState) -> None:
    expected = {
        f"streamjoin_query_state{{state={each}}}": int(each is state) for each in QueryState
    }

    assert expected == only(samples(status(state)), "query_state")


def test_without_the_job_only_that_is_said() -> None:
    assert {"streamjoin_job_up", "streamjoin_build_info"} == names(None)
    assert 0 == samples(None)["streamjoin_job_up"]


def test_before_the_first_batch_nothing_is_said_of_one() -> None:
    said = names(status())

    # A failure has not been seen either: which errors there can be is not known beforehand.
    unknown = OF_A_BATCH | OF_THE_BROKERS | OF_A_STATE_COUNT | {"streamjoin_query_failures_total"}
    assert NAMES - unknown == said
    assert 0 == samples(status())["streamjoin_output_records_total"]


def test_before_there_is_a_watermark_none_is_said() -> None:
    without_watermark = names(FULL.model_copy(update={"last_batch": batch(watermark_ms=None)}))
    unsaid = {"streamjoin_watermark_lag_seconds", "streamjoin_watermark_timestamp_seconds"}

    assert unsaid == NAMES - without_watermark


@pytest.mark.parametrize("state", sorted(set(QueryState) - {QueryState.RUNNING}))
def test_what_holds_only_while_running_is_not_said_otherwise(state: QueryState) -> None:
    assert WHILE_RUNNING == NAMES - names(FULL.model_copy(update={"state": state}))


def test_latencies_are_a_cumulative_histogram() -> None:
    oldest, newest = (round((NOW_SECONDS + 0.5 - ago) * 1000) for ago in (1.0, 0.2))
    read = side(record_time_min_ms=oldest, record_time_max_ms=newest)
    values = samples(status_after(batch(left=read)))

    def bucket(bound: str) -> float:
        return values[f"streamjoin_end_to_end_latency_seconds_bucket{{le={bound}}}"]

    assert [0, 4, 14, 20, 20] == [*map(bucket, ("0.2", "0.35", "0.75", "1.0", "+Inf"))]
    assert 20 == values["streamjoin_end_to_end_latency_seconds_count"]
    assert pytest.approx(12.0) == values["streamjoin_end_to_end_latency_seconds_sum"]


@pytest.mark.parametrize("state", list(QueryState))
def test_the_lag_is_told_as_the_brokers_say_it_whatever_the_query_does(
    state: QueryState,
) -> None:
    assert names(FULL.model_copy(update={"state": state})) >= OF_THE_BROKERS


@pytest.mark.parametrize(
    "report",
    [
        broker_report(error="Local: Timed out"),
        broker_report(answered_at=NOW - timedelta(seconds=61)),
    ],
)
def test_a_lag_that_nobody_has_seen_of_late_is_gone(report: BrokerReport) -> None:
    away = FULL.model_copy(update={"brokers": report})

    assert {
        "streamjoin_offsets_behind_latest",
        "streamjoin_retention_headroom_offsets",
    } == NAMES - names(away)
    assert 0 == samples(away)["streamjoin_brokers_up"]


def test_records_that_were_deleted_unread_show_as_negative_headroom() -> None:
    left = SideOffsets(topic="impressions", read={0: 90}, earliest={0: 95}, latest={0: 100})
    values = samples(FULL.model_copy(update={"brokers": broker_report(left=left)}))

    assert -5 == values["streamjoin_retention_headroom_offsets{partition=0,side=left}"]


def test_a_silent_side_is_said_to_hold_the_watermark_back() -> None:
    silent = status_after(batch(left=side(event_time_max_ms=None)))

    assert {
        "streamjoin_watermark_held_back{side=left}": 1,
        "streamjoin_watermark_held_back{side=right}": 0,
    } == only(samples(silent), "held_back")


def test_counters_tell_in_openmetrics_that_they_began_with_the_job() -> None:
    body, _ = exposition(FULL, NOW, "application/openmetrics-text;version=1.0.0")
    created = {
        sample.name: sample.value
        for family in openmetrics_of(body.decode())
        for sample in family.samples
        if sample.name.endswith("_created")
    }

    counted = {name for name, kind, _ in TABLE if kind in {"counter", "histogram"}}
    assert {f"{name.removesuffix('_total')}_created" for name in counted} == set(created)
    assert {NOW_SECONDS} == set(created.values())


def test_the_watermark_lag_grows_while_nothing_comes() -> None:
    body, _ = exposition(FULL, NOW + timedelta(minutes=1), "")

    assert "streamjoin_watermark_lag_seconds 75.5\n" in body.decode()


def test_one_scrape_leaves_nothing_to_the_next() -> None:
    before = names(None)
    names(FULL)

    assert before == names(None)


def test_openmetrics_is_spoken_to_those_who_ask_for_it() -> None:
    accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"

    body, content_type = exposition(FULL, NOW, accept)

    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert len(TABLE) == len([*openmetrics_of(body.decode())])
    assert openmetrics.exposition.CONTENT_TYPE_LATEST != exposition(FULL, NOW, "text/html")[1]


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain;version=0.0.4", "nonsense;;=,"])
def test_everyone_else_gets_the_text_format(accept: str) -> None:
    body, content_type = exposition(FULL, NOW, accept)

    assert content_type.startswith("text/plain; version=")
    assert b"\nstreamjoin_job_up 1.0\n" in body


def families(of: JobStatus | None):
    body, _ = exposition(of, NOW, "")
    return [*text_string_to_metric_families(body.decode())]


def names(of: JobStatus | None) -> set[str]:
    """Of families that have a sample."""
    return {name(family) for family in families(of) if family.samples}


def name(family) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def labels(family) -> set[str]:
    return {label for sample in family.samples for label in sample.labels}


def samples(of: JobStatus | None) -> dict[str, float]:
    return {
        sample.name + labelled(sample.labels): sample.value
        for family in families(of)
        for sample in family.samples
    }


def labelled(pairs: dict[str, str]) -> str:
    text = ",".join(f"{label}={value}" for label, value in sorted(pairs.items()))
    return f"{{{text}}}" if text else ""


def only(values: dict[str, float], part: str) -> dict[str, float]:
    return {name: value for name, value in values.items() if part in name}


def without(values: dict[str, float], *parts: str) -> dict[str, float]:
    return {name: n for name, n in values.items() if not any(part in name for part in parts)}
