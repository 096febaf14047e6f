"""Cost of a row in counted operations, which do not depend on the machine.

The counts are those of RocksDB with the settings of the job. A row of a side has two entries in the
store: its value, and the time index for eviction (state format 4).
"""

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from job.join.processor import release_states
from job.protocol.progress import BatchProgress
from tests.semantics.streams import T0, Stream, spec_text

N = 50
LATER = T0 + 600_000


@pytest.fixture(params=["inner", "left_outer"])
def stream(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Stream, bool]]:
    """The stream, and whether unmatched rows of its left side are emitted."""
    stream = Stream(spark, tmp_path, spec_text(join_type=request.param))
    yield stream, request.param == "left_outer"
    stream.stop()


def rows(side: str, name: str, count: int = N, at: int = T0) -> list[dict[str, Any]]:
    column = "a" if side == "left" else "b"
    return [{"k": f"{name}{n}", "t": at + n, column: n} for n in range(count)]


def work(stream: Stream, **records: Any) -> dict[str, float]:
    """Counts of the batches for these records."""
    before = len(stream.progress())
    stream.feed(**records)
    return summed(stream.progress()[before:])


def summed(batches: list[BatchProgress]) -> dict[str, float]:
    names = {
        "gets": "rocksdbGetCount",
        "puts": "rocksdbPutCount",
        "iterated": "rocksdbTotalBytesReadThroughIterator",
    }
    return {
        name: sum(batch.state_custom.get(metric, 0) for batch in batches)
        for name, metric in names.items()
    }


def test_arriving_row_is_written_without_a_lookup_and_found_by_its_match(
    stream: tuple[Stream, bool],
) -> None:
    query, is_outer = stream
    alone = work(query, left=rows("left", "x"))
    assert {"gets": 0, "puts": 2 * N, "iterated": 0} == alone

    unlike = work(query, right=rows("right", "y"))
    assert {"gets": 0, "puts": 2 * N, "iterated": 0} == unlike

    # The matched flag of a row is a separate write.
    matching = work(query, right=rows("right", "x"))
    assert (0, (3 if is_outer else 2) * N) == (matching["gets"], matching["puts"])
    assert 0 < matching["iterated"]


def test_eviction_costs_what_it_removes_however_much_is_stored(
    stream: tuple[Stream, bool],
) -> None:
    query, is_outer = stream
    evictions = []
    for more, end in ((0, LATER), (20 * N, LATER + 60_000)):
        stays = rows("left", "stays", more, LATER + 3_600_000)
        work(query, left=[*rows("left", "goes", at=end - 60_000), *stays])
        closing = {"k": "end", "t": end, "a": 1}
        work(query, left=[closing], right=[{"k": "end", "t": end, "b": 1}])
        evictions.append(query.progress()[-1])

    few, many = ({**summed([each]), "removed": each.state_rows_removed} for each in evictions)
    assert few["removed"] >= N
    assert few["puts"] == 2 * few["removed"]
    for name in ("puts", "gets", "iterated"):
        assert few[name] / few["removed"] == pytest.approx(many[name] / many["removed"], rel=0.05)
    assert is_outer or few["gets"] == 0


def test_value_is_parsed_once_and_written_once(stream: tuple[Stream, bool]) -> None:
    query, _ = stream
    for name in ("x", "y"):  # the first is followed by a batch without data, for the watermark
        query.feed(left=rows("left", name), right=rows("right", name))

    text = io.StringIO()
    with redirect_stdout(text):
        query.explain()
    plan = text.getvalue()
    # The records of the two sides may be in two batches.
    sides = 2 - plan.count("LocalTableScan <empty>")
    assert 1 <= sides
    # The second one of a side is in a CASE, only for records with a number in a STRING field.
    assert (2 * sides, 1) == (plan.count("from_json("), plan.count("StructsToJsonEvaluator("))


def test_probe_of_a_slot_on_the_heap_reads_nothing_from_the_store(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(spark, tmp_path, spec_text(more="engine: real_time"))
    try:
        work(stream, left=rows("left", "x"), right=rows("right", "z", 1))
        matches = work(stream, right=rows("right", "x"))
        release_states(spark)
        loaded = work(stream, right=rows("right", "x"))
    finally:
        stream.stop()

    # The rest is of the timer and the clock of the partition.
    assert matches["gets"] < N / 2
    assert matches["iterated"] < 10 * N < loaded["iterated"]
