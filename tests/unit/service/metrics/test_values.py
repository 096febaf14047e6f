"""Values of the metrics, from a status with a batch, brokers and a count of the state."""

from datetime import timedelta

import pytest

from job.protocol.progress import TableCounts
from job.protocol.reasons import REASONS
from job.protocol.reports import BrokerReport, SideOffsets
from job.protocol.status import Phase, QueryState
from job.protocol.totals import BATCH_SECONDS_BOUNDS, TRANSACTION_RESULTS
from job.spec.sides import SIDES
from tests.unit.service.builders import (
    NOW,
    NOW_SECONDS,
    batch,
    broker_report,
    side,
    status,
    status_after,
)
from tests.unit.service.metrics.scrape import FULL, NAMES, names, only, samples

TESTED_BELOW = (
    "batch_d",
    "batch_p",
    "bad_r",
    "dead_l",
    "query_state",
    "query_phase",
    "build",
    "end_to",
    "table",
    "without_version",
)


def by_side(name: str, labels: str = "") -> list[str]:
    return [f"streamjoin_{name}{{{labels}side={side}}}" for side in SIDES]


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
        "streamjoin_lineage_events_total{result=dropped}": 1,
        "streamjoin_lineage_events_total{result=sent}": 3,
        "streamjoin_partition_event_time_max_timestamp_seconds{partition=1,side=left}": (
            NOW_SECONDS - 2.5
        ),
        "streamjoin_partition_event_time_max_timestamp_seconds{partition=1,side=right}": (
            NOW_SECONDS - 4
        ),
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
        "streamjoin_state_count_stored_ids{side=left}": 90,
        "streamjoin_state_count_timestamp_seconds": NOW_SECONDS,
        "streamjoin_state_count_unmatched_rows{side=left}": 42,
        "streamjoin_watermark_held_back{side=left}": 0,
        "streamjoin_watermark_held_back{side=right}": 0,
        "streamjoin_event_time_max_timestamp_seconds{side=left}": NOW_SECONDS - 2.5,
        "streamjoin_event_time_max_timestamp_seconds{side=right}": NOW_SECONDS - 4,
        "streamjoin_input_records_total{side=left}": 20,
        "streamjoin_input_records_total{side=right}": 10,
        "streamjoin_job_up": 1,
        "streamjoin_last_progress_timestamp_seconds": NOW_SECONDS,
        "streamjoin_late_rows_total": 2,
        "streamjoin_kept_back_results_total": 3,
        "streamjoin_duplicate_rows_total{side=left}": 3,
        "streamjoin_duplicate_rows_total{side=right}": 0,
        "streamjoin_skipped_records{side=left}": 7,
        "streamjoin_skipped_records{side=right}": 0,
        "streamjoin_filtered_records_total{side=left}": 0,
        "streamjoin_null_key_records_total{side=left}": 1,
        "streamjoin_filtered_records_total{side=right}": 0,
        "streamjoin_null_key_records_total{side=right}": 0,
        "streamjoin_offsets_behind_latest{partition=0,side=left}": 10,
        "streamjoin_offsets_behind_latest{partition=0,side=right}": 2,
        "streamjoin_offsets_behind_latest{partition=1,side=left}": 5,
        "streamjoin_offsets_behind_latest{partition=1,side=right}": 0,
        "streamjoin_output_records_total": 30,
        "streamjoin_unmatched_results_total": 4,
        "streamjoin_filtered_results_total": 1,
        "streamjoin_query_failures_total{error=broker}": 1,
        "streamjoin_query_restarts_total": 1,
        "streamjoin_state_commit_seconds_total": 0.25,
        "streamjoin_state_custom{name=rocksdbGetCount}": 12,
        **dict.fromkeys(by_side("state_heap_rows"), 200),
        **dict.fromkeys(by_side("state_slots_loaded_total"), 2),
        **dict.fromkeys(by_side("state_slots_spilled_total"), 0),
        **dict.fromkeys(by_side("state_probes_total", "place=heap,"), 9),
        **dict.fromkeys(by_side("state_probes_total", "place=rocksdb,"), 0),
        "streamjoin_state_memory_bytes": 1_000_000,
        "streamjoin_state_removal_seconds_total": 0.0625,
        "streamjoin_state_rows": 400,
        "streamjoin_state_rows_removed_total": 10,
        "streamjoin_state_rows_updated_total": 50,
        "streamjoin_state_update_seconds_total": 0.125,
        "streamjoin_watermark_lag_seconds": 15.5,
        "streamjoin_watermark_timestamp_seconds": NOW_SECONDS - 15.5,
        **{f"streamjoin_transactions_total{{result={each}}}": 0 for each in TRANSACTION_RESULTS},
    } == {
        name: value
        for name, value in values.items()
        if not any(part in name for part in TESTED_BELOW)
    }


def test_counters_are_sums_over_batches_and_gauges_are_of_the_last_one() -> None:
    values = samples(
        status_after(
            batch(output_records=30, state_rows=400), batch(output_records=5, state_rows=300)
        )
    )

    assert 35 == values["streamjoin_output_records_total"]
    assert 300 == values["streamjoin_state_rows"]
    assert 0.5 == values["streamjoin_batch_phase_seconds_total{phase=add_batch}"]


def test_bad_records_are_counted_by_side_and_reason_zeros_included() -> None:
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
        "streamjoin_bad_records_total{reason=null_key,side=output}": 0,
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
def test_exactly_one_state_is_one(state: QueryState) -> None:
    expected = {
        f"streamjoin_query_state{{state={each}}}": int(each is state) for each in QueryState
    }

    assert expected == only(samples(status(state)), "query_state")


def test_phase_is_a_metric_of_the_real_time_engine_only() -> None:
    assert {
        "streamjoin_query_phase{phase=catch_up}": 0,
        "streamjoin_query_phase{phase=loading_table}": 0,
        "streamjoin_query_phase{phase=real_time}": 1,
    } == only(samples(status(phase=Phase.REAL_TIME)), "query_phase")
    assert {} == only(samples(status()), "query_phase")


# --- Brokers


@pytest.mark.parametrize("state", list(QueryState))
def test_lag_is_exposed_in_every_state(state: QueryState) -> None:
    assert names(FULL.model_copy(update={"state": state})) >= {
        "streamjoin_offsets_behind_latest",
        "streamjoin_retention_headroom_offsets",
        "streamjoin_brokers_up",
    }


@pytest.mark.parametrize(
    "report",
    [
        broker_report(error="Local: Timed out"),
        broker_report(answered_at=NOW - timedelta(seconds=61)),
    ],
)
def test_lag_is_absent_without_a_recent_answer_of_the_brokers(report: BrokerReport) -> None:
    unreachable = FULL.model_copy(update={"brokers": report})

    assert {
        "streamjoin_offsets_behind_latest",
        "streamjoin_retention_headroom_offsets",
    } == NAMES - names(unreachable)
    assert 0 == samples(unreachable)["streamjoin_brokers_up"]


def test_records_deleted_before_they_were_read_show_as_negative_headroom() -> None:
    left = SideOffsets(topic="impressions", read={0: 90}, earliest={0: 95}, latest={0: 100})
    values = samples(FULL.model_copy(update={"brokers": broker_report(left=left)}))

    assert -5 == values["streamjoin_retention_headroom_offsets{partition=0,side=left}"]


# --- Tables


def test_table_has_its_own_metrics() -> None:
    counts = TableCounts(rows_without_key=5, keys_moved=2, stale_answers=3)
    made = status_after(batch(state_rows=400, table=counts), batch(state_rows=300, table=counts))
    values = samples(made.model_copy(update={"table": "right", "table_records_left": 70}))

    assert {
        "streamjoin_table_rows": 300,
        "streamjoin_table_loading_records": 70,
        "streamjoin_table_keys_moved_total": 4,
        "streamjoin_table_stale_answers_total": 6,
    } == only(values, "table")
    assert 10 == values["streamjoin_rows_without_version_total{reason=no_key}"]
    assert {} == only(samples(made), "table")
