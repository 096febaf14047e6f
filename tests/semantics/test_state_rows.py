"""The number of rows in state that the job carries on, against the rows that Spark holds."""

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from job.checkpoint.state_reader import StateReader
from job.join_spec.spec import spec_from_yaml
from job.plan.planner import join_plan
from job.query.state_rows import StateRows
from tests.semantics.streams import T0, Stream, spec_text


@pytest.mark.parametrize("join_type", ["inner", "full_outer", "left_semi"])
def test_it_is_the_number_of_rows_held(spark: SparkSession, tmp_path: Path, join_type: str) -> None:
    columns = "k: left.k, a: left.a" if join_type == "left_semi" else "k: left.k, b: right.b"
    text = spec_text(join_type=join_type, columns=columns)
    plan = join_plan(spec_from_yaml(text, {}), state_partitions=1)
    reader = StateReader(spark, plan, str(tmp_path / "checkpoint"))
    stream = Stream(spark, tmp_path, text)
    rows, held = StateRows(), []
    rows.begins_after(None)

    def fed(left: list[tuple[str, int]], right: list[tuple[str, int]]) -> tuple[int, int | None]:
        before = len(stream.progress())
        stream.feed(
            left=[{"k": k, "t": T0 + 1000 * second, "a": 1} for k, second in left],
            right=[{"k": k, "t": T0 + 1000 * second, "b": 1} for k, second in right],
        )
        for batch in stream.progress()[before:]:
            rows.ended(batch.batch_id, batch.state_rows_updated, batch.state_rows_removed)
        return reader.count_rows(batch.batch_id, cancel=threading.Event()).rows, rows.after(
            batch.batch_id
        )

    try:
        # Equal key and event time: one entry of the store.
        held.append(fed([("x", 0), ("x", 0), ("y", 1)], []))
        held.append(fed([("z", 3)], [("x", 2), ("x", 2), ("w", 2)]))
        held.append(fed([("x", 4)], [("z", 5), ("y", 5)]))
        held.append(fed([("new", 30)], [("new", 30)]))
        stream.restart()
        held.append(fed([("new", 31)], []))
        held.append(fed([("end", 600)], [("end", 600)]))
    finally:
        stream.stop()

    assert [counted for counted, _ in held] == [carried for _, carried in held]
    assert max(counted for counted, _ in held) > 4
