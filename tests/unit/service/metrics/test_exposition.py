"""Names, types, labels and formats of a scrape; unknown values are absent."""

import pytest
from prometheus_client import openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_of

from job.protocol.status import QueryState
from service.metrics.exposition import exposition
from tests.unit.service.builders import NOW, NOW_SECONDS, status
from tests.unit.service.metrics.scrape import (
    DEFINITIONS,
    FULL,
    NAMES,
    families,
    name,
    names,
    samples,
)

AFTER_A_BATCH = {
    "streamjoin_partition_event_time_max_timestamp_seconds",
    "streamjoin_last_batch_input_records",
    "streamjoin_last_batch_output_records",
    "streamjoin_side_idle",
    "streamjoin_side_watermark_timestamp_seconds",
    "streamjoin_last_progress_timestamp_seconds",
    "streamjoin_batch_phase_seconds_total",
    "streamjoin_event_time_max_timestamp_seconds",
    "streamjoin_state_custom",
    "streamjoin_state_heap_rows",
    "streamjoin_state_memory_bytes",
    "streamjoin_state_probes_total",
    "streamjoin_state_rows",
    "streamjoin_state_slots_loaded_total",
    "streamjoin_state_slots_spilled_total",
    "streamjoin_table_rows",
    "streamjoin_watermark_lag_seconds",
    "streamjoin_watermark_timestamp_seconds",
}
AFTER_A_POLL_OF_THE_BROKERS = {
    "streamjoin_brokers_answer_timestamp_seconds",
    "streamjoin_brokers_up",
    "streamjoin_offsets_behind_latest",
    "streamjoin_retention_headroom_offsets",
}
AFTER_A_COUNT = {name for name in NAMES if "state_count" in name}
WHILE_RUNNING = {
    "streamjoin_last_batch_input_records",
    "streamjoin_last_batch_output_records",
    "streamjoin_state_custom",
    "streamjoin_state_heap_rows",
    "streamjoin_state_memory_bytes",
}


def test_scrape_has_the_defined_names_types_and_labels_and_no_others() -> None:
    scraped = {
        (name(family), family.type, *{label for each in family.samples for label in each.labels})
        for family in families(FULL)
    }

    defined = {(metric.name, metric.kind, *set(metric.labels)) for metric in DEFINITIONS}
    assert {(*each[:2], *sorted(each[2:])) for each in defined} == {
        (*each[:2], *sorted(each[2:])) for each in scraped
    }


def test_metrics_are_defined_once() -> None:
    assert len(DEFINITIONS) == len(NAMES)


@pytest.mark.parametrize("metric", DEFINITIONS, ids=lambda metric: metric.name)
def test_help_is_a_sentence_that_names_the_unit(metric) -> None:
    assert metric.help.endswith(".")
    if "_seconds" in metric.name:
        assert "seconds" in metric.help
    if "_bytes" in metric.name:
        assert "bytes" in metric.help


def test_only_two_metrics_are_exposed_while_the_job_is_down() -> None:
    assert {"streamjoin_job_up", "streamjoin_build_info"} == names(None)
    assert 0 == samples(None)["streamjoin_job_up"]


def test_metrics_of_batches_are_absent_before_the_first_batch() -> None:
    # Error codes are unknown before the first failure.
    unknown = {"streamjoin_query_failures_total", "streamjoin_query_phase"}
    unknown |= {"streamjoin_lineage_events_total"}  # no endpoint is set
    unknown |= {name for name in NAMES if "_table_" in name or "without_version" in name}
    unknown |= AFTER_A_BATCH | AFTER_A_POLL_OF_THE_BROKERS | AFTER_A_COUNT

    assert NAMES - unknown == names(status())
    assert 0 == samples(status())["streamjoin_output_records_total"]


@pytest.mark.parametrize("state", sorted(set(QueryState) - {QueryState.RUNNING}))
def test_figures_of_a_running_query_are_absent_otherwise(state: QueryState) -> None:
    assert WHILE_RUNNING == NAMES - names(FULL.model_copy(update={"state": state}))


def test_scrape_leaves_nothing_for_the_next_one() -> None:
    before = names(None)
    names(FULL)

    assert before == names(None)


def test_counters_have_the_start_of_the_job_as_creation_time_in_openmetrics() -> None:
    body, _ = exposition(FULL, NOW, "application/openmetrics-text;version=1.0.0")
    created = {
        sample.name: sample.value
        for family in openmetrics_of(body.decode())
        for sample in family.samples
        if sample.name.endswith("_created")
    }

    counted = {metric.name for metric in DEFINITIONS if metric.kind != "gauge"}
    assert {f"{name.removesuffix('_total')}_created" for name in counted} == set(created)
    assert {NOW_SECONDS} == set(created.values())


def test_openmetrics_is_served_on_request() -> None:
    accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"

    body, content_type = exposition(FULL, NOW, accept)

    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert len(NAMES) == len([*openmetrics_of(body.decode())])
    assert openmetrics.exposition.CONTENT_TYPE_LATEST != exposition(FULL, NOW, "text/html")[1]


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain;version=0.0.4", "nonsense;;=,"])
def test_text_format_is_served_otherwise(accept: str) -> None:
    body, content_type = exposition(FULL, NOW, accept)

    assert content_type.startswith("text/plain; version=")
    assert b"\nstreamjoin_job_up 1.0\n" in body
