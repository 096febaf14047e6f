"""The job's number of state rows, compared with the rows in Spark's state."""

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from job.checkpoint.state_reader import StateReader
from job.plan.planner import join_plan
from job.query.state_rows import StateRowCounter
from job.spec.spec import spec_from_yaml
from tests.semantics.streams import T0, Stream, spec_text
from tests.sql_worker import SQL


@pytest.mark.parametrize("join_type", ["inner", "full_outer", "left_semi"])
def test_number_is_that_of_the_rows_in_state(
    spark: SparkSession, tmp_path: Path, join_type: str
) -> None:
    columns = "k: left.k, a: left.a" if join_type == "left_semi" else "k: left.k, b: right.b"
    text = spec_text(join_type=join_type, columns=columns)
    plan = join_plan(spec_from_yaml(text, {}), SQL, state_partitions=1)
    reader = StateReader(spark, plan, str(tmp_path / "checkpoint"))
    stream = Stream(spark, tmp_path, text)
    rows, numbers = StateRowCounter(), []
    rows.on_start(None)

    def feed(left: list[tuple[str, int]], right: list[tuple[str, int]]) -> tuple[int, int | None]:
        before = len(stream.progress())
        stream.feed(
            left=[{"k": k, "t": T0 + 1000 * second, "a": 1} for k, second in left],
            right=[{"k": k, "t": T0 + 1000 * second, "b": 1} for k, second in right],
        )
        for batch in stream.progress()[before:]:
            rows.add_batch(batch.batch_id, batch.state_rows_updated, batch.state_rows_removed)
        return reader.count_rows(batch.batch_id, cancel=threading.Event()).rows, rows.after(
            batch.batch_id
        )

    try:
        # Equal key and event time: one entry of the store.
        numbers.append(feed([("x", 0), ("x", 0), ("y", 1)], []))
        numbers.append(feed([("z", 3)], [("x", 2), ("x", 2), ("w", 2)]))
        numbers.append(feed([("x", 4)], [("z", 5), ("y", 5)]))
        numbers.append(feed([("new", 30)], [("new", 30)]))
        stream.restart()
        numbers.append(feed([("new", 31)], []))
        numbers.append(feed([("end", 600)], [("end", 600)]))
    finally:
        stream.stop()

    assert [in_state for in_state, _ in numbers] == [summed for _, summed in numbers]
    assert max(in_state for in_state, _ in numbers) > 4
