"""Checks of the executors before the query starts, on Spark's Python workers."""

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from job.checkpoint.folder import Folder
from job.errors import CheckpointError, QueryError
from job.query import cluster
from job.query.cluster import check_executors

pytestmark = pytest.mark.usefixtures("same_python")


def test_other_python_on_the_executors_is_an_error_with_the_remedy(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = Path(sys.base_prefix) / "bin" / "python3"
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))

    with pytest.raises(QueryError, match=r"ModuleNotFoundError: .* set PYSPARK_PYTHON to it"):
        check_executors(spark, Folder(spark, str(tmp_path / "checkpoint")))


class Elsewhere(Folder):
    """A checkpoint that the executors cannot read at its path."""

    def path(self, name: str) -> str:
        return f"file:/nonexistent/{name}"


def test_check_leaves_no_file_in_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    check_executors(spark, Folder(spark, str(tmp_path / "checkpoint")))

    assert [] == [path.name for path in (tmp_path / "checkpoint").iterdir()]


def test_executor_that_does_not_see_the_checkpoint_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=r"cannot find /nonexistent/.* not on a shared"):
        check_executors(spark, Elsewhere(spark, str(tmp_path / "checkpoint")))


def test_executor_with_other_packages_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_versions", lambda: {"streamjoin": "0.0.1"})

    with pytest.raises(QueryError, match=r"and this job streamjoin 0\.0\.1: install the same"):
        check_executors(spark, Folder(spark, str(tmp_path / "checkpoint")))


def test_java_options_of_an_executor_that_override_those_of_the_job_are_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = spark.sparkContext.environment
    monkeypatch.setitem(environment, "_JAVA_OPTIONS", "-Xmx1g -Duser.language=tr")

    with pytest.raises(QueryError, match=r"_JAVA_OPTIONS of .* contains -Duser\.language=tr: Java"):
        check_executors(spark, Folder(spark, str(tmp_path / "checkpoint")))
