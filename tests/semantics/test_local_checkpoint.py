"""A checkpoint on a local disk: no process for each file, and a link to a folder is that folder."""

from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from job.folder import Folder
from tests.semantics.streams import T0, Stream, spec_text


def spent_on_ended_children(spark: SparkSession) -> float:
    """CPU-seconds of the programs that the JVM has started and that have ended."""
    assert spark._jvm is not None
    times = psutil.Process(spark._jvm.java.lang.ProcessHandle.current().pid()).cpu_times()
    return float(times.children_user + times.children_system)


def test_no_program_is_started_for_the_files_of_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(spark, tmp_path, spec_text())
    try:
        stream.feed(left=[{"k": "a", "t": T0, "a": 1}])
        before = spent_on_ended_children(spark)
        for second in range(5):
            stream.feed(right=[{"k": "a", "t": T0 + second, "b": second}])
        assert before == spent_on_ended_children(spark)
    finally:
        stream.stop()


def test_a_link_to_a_folder_is_that_folder(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "checkpoint").symlink_to(tmp_path / "disk")
    Folder(spark, str(tmp_path / "disk")).write("desired_state.json", {})

    linked = Folder(spark, str(tmp_path / "checkpoint"))
    assert ["desired_state.json"] == linked.names()
    assert f"file:{tmp_path}/disk" == linked.root
