"""Estimated resources of a join at the expected rates."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from job.errors import SetupError
from job.plan.capacity import (
    OPERATOR_SHARE,
    REAL_TIME_CORES,
    REAL_TIME_RATE,
    AvailableResources,
    Load,
    Model,
    expected_load,
    row_bytes,
)
from job.plan.explain import explained, plan_as_json
from job.plan.explain_load import warnings
from job.plan.fingerprint import fingerprint
from job.plan.resources import available_resources
from job.settings import JobSettings
from tests.unit.specs import plan

MODEL = Model(
    measured_on="a machine",
    rows_per_cpu_second=10_000,
    cpu_spread=2,
    busy_cores=1,
    state_per_byte=0.5,
    changes_per_byte=0.25,
    bytes_spread=1.5,
    memory_bytes=2**30,
    memory_spread=1.2,
)
ROOMY = AvailableResources(cores=64, heap_bytes=2 * 2**30, disk_free_bytes=2**50)
# The sides of tests/unit/specs.py: their delays are 10 and 20 seconds, the window 1 minute before
# and 1 hour after.
LONGEST_DELAY = timedelta(seconds=20)


def load(*, left: float = 100, right: float = 10, **changes: Any) -> Load:
    rates = {"left__expected_rate": left, "right__expected_rate": right}
    found = expected_load(plan(**changes, **rates), MODEL)
    assert found is not None
    return found


@pytest.mark.parametrize("join_type", ["inner", "left_outer", "full_outer", "left_semi"])
def test_row_is_stored_until_the_slower_watermark_passes_its_window(join_type: str) -> None:
    shown = {"output__columns": {"ad_id": "left.ad_id"}}
    expected = load(join__type=join_type, **shown)

    assert timedelta(hours=1) + LONGEST_DELAY == expected.left.stored_for
    assert timedelta(minutes=1) + LONGEST_DELAY == expected.right.stored_for
    assert 100 * 3_620 == expected.left.rows
    assert 10 * 80 == expected.right.rows
    assert 100 * 3_620 + 10 * 80 == expected.rows


def test_rows_of_a_tumbling_window_are_most_before_its_end() -> None:
    expected = load(join={"type": "inner", "window": "10 minutes"})

    assert 110 * 620 == expected.rows


def test_rows_that_match_only_older_rows_are_not_stored() -> None:
    expected = load(join__match_window={"before": "-1 minute", "after": "1 hour"})

    assert timedelta(0) == expected.right.stored_for
    assert 0 == expected.right.rows


def test_rows_with_equal_event_times_are_stored_for_the_delay() -> None:
    expected = load(
        join={"type": "inner"}, left__key=["ad_id", "shown_at"], right__key=["ad_id", "clicked_at"]
    )

    assert LONGEST_DELAY == expected.left.stored_for


def test_side_without_bound_grows_by_its_input() -> None:
    expected = load(
        join={"type": "inner", "unbounded_state": True, "match_window": {"after": "1 hour"}}
    )

    assert (100 * 3_620, None, None) == (
        expected.left.rows,
        expected.right.rows,
        expected.rows,
    )
    assert expected.state_bytes is None
    assert 10 * 86_400 == expected.right.rows_a_day
    assert 10 * 86_400 * expected.right.row_state_bytes == expected.growth_bytes_a_day
    assert 2**30 + 512 * 2**20 == expected.memory_bytes


def test_bytes_are_those_of_the_stored_columns() -> None:
    made = plan()
    # Left: ad_id, shown_at, cost and its position after a word of null bits; twice the key's row,
    # which has such a word as well, with the event time.
    left = 8 * (1 + 3 + 1) + 2 * 8 * (1 + 1 + 1)
    assert left == row_bytes(made, made.left)
    # Right: user is text.
    assert left + 16 == row_bytes(made, made.right)
    assert left + 200 == row_bytes(made, made.right, text_bytes=200)

    expected = load()
    assert (100 * 3_620 * left + 800 * (left + 16)) * 0.5 == expected.state_bytes
    assert (100 * left + 10 * (left + 16)) * 0.25 == expected.change_bytes_per_second


def test_wide_types_take_more_than_a_word() -> None:
    schema = "ad_id DECIMAL(20, 0), shown_at TIMESTAMP, campaign ARRAY<STRING>, cost DECIMAL(9, 2)"
    columns = {"campaign": "left.campaign", "cost": "left.cost"}
    made = plan(
        left__schema=schema,
        right__schema="ad_id DECIMAL(20, 0), clicked_at TIMESTAMP, user STRING",
        output__columns=columns,
    )

    assert 8 * 6 + 16 + 64 + 2 * (8 * 3 + 16) == row_bytes(made, made.left)


def test_state_contains_the_ids_of_a_deduplicated_side() -> None:
    deduplicate = {"by": ["campaign", "ad_id"], "within": "10 minutes"}
    plain, expected = load(), load(left__deduplicate=deduplicate)
    # The slot and two parts (one of them text) after a word of null bits, then two times, position,
    # flag and row.
    width = 8 * (1 + 3) + 16 + 8 * (1 + 5)

    assert plain.state_bytes is not None
    assert (0, 100 * 620) == (plain.ids, expected.ids)
    assert expected.right == plain.right
    assert expected.rows == plain.rows
    assert plain.state_bytes + 62_000 * width * 0.5 == expected.state_bytes
    assert plain.memory_bytes + 62_000 * width * 0.5 == expected.memory_bytes
    assert plain.change_bytes_per_second + 100 * width * 0.25 == expected.change_bytes_per_second


def test_ids_of_a_tumbling_window_leave_with_it() -> None:
    join = {"type": "inner", "window": "10 minutes"}
    expected = load(join=join, right__deduplicate={"by": ["user"], "within": "1 minute"})

    assert 10 * (600 + 20) == expected.ids


def test_plan_prints_the_ids_in_the_estimate() -> None:
    made = plan(
        left__expected_rate=100,
        right__expected_rate=10,
        left__deduplicate={"by": ["ad_id"], "within": "10 minutes"},
    )
    text = " ".join(explained(made).split())

    assert "100 rows/s, stored for up to 1 hour 20 seconds: 362,000 rows and 62,000 ids" in text
    assert "state 363,000 rows and 62,000 ids," in text
    assert "cores do not include deduplicate" in text
    estimate = plan_as_json(made)["expected_load"]
    assert isinstance(estimate, dict)
    assert (62_000, 62_000) == (estimate["stored_ids"], estimate["sides"]["left"]["stored_ids"])
    assert 0 == estimate["sides"]["right"]["stored_ids"]


def test_cores_count_the_rows_of_both_sides() -> None:
    assert 0.75 == load(left=10_000, right=5_000).cores
    assert 1.5 == load(left=10_000, right=5_000, join__operator="spark").cores


def test_memory_grows_with_the_state_up_to_the_limit_of_rocksdb() -> None:
    small, large = load(left=100), load(left=100_000)

    assert small.state_bytes is not None
    assert 2**30 + small.state_bytes == small.memory_bytes
    assert 2**30 + 512 * 2**20 == large.memory_bytes


def test_nothing_is_estimated_without_both_rates() -> None:
    made = plan(left__expected_rate=5)

    assert expected_load(made) is None
    assert (
        "size              set right.expected_rate (records per second) for an estimate"
        in explained(made)
    )
    assert "Expected load" not in explained(made)
    assert plan_as_json(made)["expected_load"] is None


def test_checkpoint_accepts_another_rate() -> None:
    assert fingerprint(plan()) == fingerprint(plan(left__expected_rate=5, right__expected_rate=7))


def test_sufficient_resources_cause_no_warning() -> None:
    assert [] == list(warnings(load(), ROOMY))


@pytest.mark.parametrize(
    ("rate", "warned"),
    [(1, None), (10**5, "may be too much for 2 cores"), (10**7, "are too much for 2 cores")],
)
def test_rate_beyond_the_cores_causes_a_warning(rate: float, warned: str | None) -> None:
    base = load(join__match_window={"before": "0 seconds", "after": "0 seconds"}, left=1, right=1)
    resources = replace(ROOMY, cores=2)
    found = [
        warning
        for warning in warnings(replace(base, cores=rate / 50_000), resources)
        if "cores" in warning
    ]

    assert (warned is None) == (found == [])
    assert warned is None or warned in found[0]


def test_state_beyond_memory_and_disk_causes_warnings() -> None:
    memory, disk = warnings(load(left=10_000), replace(ROOMY, disk_free_bytes=10**9))

    assert "larger than the 512 MB of memory that RocksDB may use" in memory
    assert "the checkpoint takes about" in disk
    assert "its disk has 950 MiB free" in disk


def test_unbounded_growth_causes_a_warning_with_the_day_that_the_disk_is_full() -> None:
    expected = load(
        join={"type": "inner", "unbounded_state": True, "match_window": {"after": "1 hour"}}
    )
    free = round(expected.growth_bytes_a_day * 2 * 12.5)
    [warning] = warnings(expected, replace(ROOMY, disk_free_bytes=free))

    assert "per day indefinitely; the checkpoint's disk" in warning
    assert warning.endswith("is full in 12 days")


@pytest.mark.parametrize(
    ("engine", "operator", "texts", "absent"),
    [
        ("micro_batch", "spark", ["small batches follow each other"], ["the operator streamjoin"]),
        (
            "micro_batch",
            "streamjoin",
            [
                "small batches follow each other",
                "the operator streamjoin is counted with 0.5 times",
            ],
            ["In real time"],
        ),
        (
            "real_time",
            "streamjoin",
            ["In real time a row needs more: 0.33 cores were used at 1,000 records/s a side"],
            ["small batches follow each other"],
        ),
    ],
)
def test_estimate_of_cores_names_engine_and_operator(
    engine: str, operator: str, texts: list[str], absent: list[str]
) -> None:
    made = plan(
        engine=engine, join__operator=operator, left__expected_rate=100, right__expected_rate=10
    )
    text = " ".join(explained(made, ROOMY).split())

    assert "a model fitted to the benchmark of the operator spark" in text
    assert (texts, []) == (
        [part for part in texts if part in text],
        [part for part in absent if part in text],
    )


def test_measured_cores_and_operators_are_those_of_the_benchmark() -> None:
    results = (Path(__file__).parents[3] / "docs/benchmarks/results.md").read_text()
    [used] = re.findall(r"\| job, cores used \|\s+([\d.]+) \|\s+[\d.]+ \|", results)
    on_the_heap = results.partition("## Rows in state on the heap")[2]
    row = re.search(r"rows per CPU-second, steady \|\s+([\d,]+) \|\s+([\d,]+) \|", on_the_heap)
    assert row is not None
    own, spark = (int(figure.replace(",", "")) for figure in row.groups())

    assert float(used) == REAL_TIME_CORES
    assert f"{REAL_TIME_RATE:,} records/s a side" in results
    assert round(spark / own, 1) == OPERATOR_SHARE


def test_cores_are_limited_by_spark_master_and_state_partitions() -> None:
    made = plan()  # 2 partitions

    def cores(master: str, of_machine: int = 8) -> int:
        return available_resources(JobSettings(spark_master=master), made, cores=of_machine).cores

    assert (1, 1, 2, 2, 1) == (
        cores("local"),
        cores("local[1]"),
        cores("local[4]"),
        cores("local[*]"),
        cores("local[*]", of_machine=1),
    )
    assert 2 == cores("spark://master:7077", of_machine=1)


def test_memory_is_limited_by_heap_and_rocksdb() -> None:
    made = plan()
    half = available_resources(JobSettings(driver_memory="512m"), made, cores=2)
    cluster = available_resources(JobSettings(spark_master="spark://master:7077"), made, cores=2)

    small = explained(plan(left__expected_rate=10**5, right__expected_rate=1), half)

    assert 512 * 2**20 == half.heap_bytes
    assert "memory            2.1 GiB resident, at most 2.5 GiB" in small
    assert 2.5 * 2**30 == half.memory_limit_bytes
    assert half.disk_free_bytes is not None
    assert (None, None) == (cluster.memory_limit_bytes, cluster.disk_free_bytes)


def test_memory_of_a_join_in_the_documentation_is_the_limit_of_the_plan() -> None:
    guide = (Path(__file__).parents[3] / "docs/deploy.md").read_text()
    job = available_resources(JobSettings(), plan(), cores=2).memory_limit_bytes
    assert job is not None
    join = job / 2**30 + 0.25  # the service

    assert f"| **{job / 2**30:g} GiB** |" in guide
    assert f"| **{join:g} GiB** |" in guide
    joins = {machine: int((machine - 1) / join) for machine in (16, 24, 64)}
    shown = ", ".join(f"{count} on {machine} GiB" for machine, count in joins.items())
    assert f"(GiB of the machine - 1) / {join:g} joins, rounded down: {shown}" in guide


def test_free_space_of_other_file_systems_is_unknown() -> None:
    assert (
        available_resources(
            JobSettings(), plan(checkpoint="s3a://bucket/join"), cores=2
        ).disk_free_bytes
        is None
    )


def test_free_space_of_an_inaccessible_folder_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: Path) -> bool:
        raise PermissionError

    monkeypatch.setattr(Path, "exists", refuse)

    assert available_resources(JobSettings(), plan(), cores=2).disk_free_bytes is None


def test_invalid_heap_size_is_refused() -> None:
    with pytest.raises(SetupError, match="STREAMJOIN_DRIVER_MEMORY is 'lots'"):
        available_resources(JobSettings(driver_memory="lots"), plan(), cores=2)


def test_json_has_the_estimate_with_its_spread() -> None:
    made = plan(left__expected_rate=100, right__expected_rate=10)
    load = plan_as_json(made, replace(ROOMY, cores=2))["expected_load"]

    assert isinstance(load, dict)
    assert 100 * 3_620 + 800 == load["state_rows"]
    assert {"cores": 2, "warnings": []}.items() <= load.items()
    assert {"cores", "memory", "bytes"} == set(load["spread"])
