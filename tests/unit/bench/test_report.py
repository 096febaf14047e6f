"""The reservations about a figure are printed with it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.report import append_line, is_failed, printed, remarks, throughput_table
from bench.throughput import Throughput

RUN = Throughput(
    correct=True,
    may_lose_rows=False,
    outputs=10,
    expected_outputs=10,
    cold_rows_per_second=1_000.0,
    steady_rows_per_second=None,
    cold_rows_per_cpu_second=500.0,
    steady_rows_per_cpu_second=None,
    first_output_seconds=9.25,
    peak_memory_bytes=3 * 2**20,
    broker_cpu_seconds=1.0,
    foreign_cores=0.02,
)


def cells(**runs: list[Throughput]) -> list[list[str]]:
    lines = printed(throughput_table(runs)).splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_figure_is_the_median_of_its_runs_with_their_extremes() -> None:
    runs = [replace(RUN, cold_rows_per_second=rate) for rate in (3_000.0, 1_000.0, 2_500.0)]

    assert ["rows/s, cold", "2,500 [1,000-3,000]"] in cells(one=runs)


def test_right_and_undisturbed_run_needs_no_word() -> None:
    assert [] == list(remarks("throughput", {"one": [RUN]}))


def test_wrong_result_is_named() -> None:
    wrong = replace(RUN, correct=False, outputs=9)

    [line] = remarks("throughput", {"one": [RUN, RUN], "other": [RUN, wrong]})

    assert "other, throughput run 2 is WRONG: 9 rows were written where 10 were expected" in line


def test_disturbed_run_is_named() -> None:
    [line] = remarks("throughput", {"one": [replace(RUN, foreign_cores=0.4)]})

    assert "one, throughput run 1 was disturbed: other programs used 0.40 cores" in line


def test_results_are_compared_with_what_is_expected() -> None:
    fewer = replace(RUN, correct=False, may_lose_rows=True, outputs=8)

    assert ["results, expected 10", "10 [10-10]", "8 [8-8]"] in cells(one=[RUN], peer=[fewer])


def test_rows_that_a_peer_may_lose_are_named_and_are_no_failure() -> None:
    fewer = replace(RUN, correct=False, may_lose_rows=True, outputs=8)

    assert not is_failed(fewer)
    assert ["peer, throughput run 1 lost 2 of 10 rows"] == list(
        remarks("throughput", {"peer": [fewer]})
    )


@pytest.mark.parametrize(
    "wrong",
    [
        replace(RUN, correct=False, outputs=8),
        replace(RUN, correct=False, may_lose_rows=True),
        replace(RUN, correct=False, may_lose_rows=True, outputs=11),
    ],
    ids=["missing rows of streamjoin", "other content", "additional rows"],
)
def test_other_wrong_results_are_failures(wrong: Throughput) -> None:
    [line] = remarks("throughput", {"one": [wrong]})

    assert is_failed(wrong)
    assert "is WRONG" in line


@pytest.mark.processes
def test_each_run_appends_a_line_for_programs(tmp_path: Path) -> None:
    file = tmp_path / "results" / "runs.jsonl"

    append_line(file, RUN, {"workload": "inner"})
    append_line(file, replace(RUN, foreign_cores=0.4), {"workload": "inner"})

    first, second = map(json.loads, file.read_text().splitlines())
    assert ("throughput", "inner", 10) == (first["kind"], first["workload"], first["outputs"])
    assert (False, True) == (first["disturbed"], second["disturbed"])
