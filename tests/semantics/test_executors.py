"""What executors are asked before the query starts; Spark's Python workers answer."""

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from job.checkpoint.folder import Folder
from job.errors import CheckpointError, QueryError
from job.query import cluster
from job.query.cluster import check_executors

pytestmark = pytest.mark.usefixtures("same_python")


def test_executors_with_another_python_are_told_how_to_get_this_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = Path(sys.base_prefix) / "bin" / "python3"
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))

    with pytest.raises(QueryError, match=r"ModuleNotFoundError: .*: PYSPARK_PYTHON names it"):
        check_executors(spark, Folder(spark, str(tmp_path / "checkpoint")))


class Elsewhere(Folder):
    """For the executors: the same path is a folder of their own."""

    def path(self, name: str) -> str:
        return f"file:/nonexistent/{name}"


def test_executors_that_see_the_checkpoint_leave_nothing_in_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    check_executors(spark, Folder(spark, str(tmp_path / "checkpoint")))

    assert [] == [path.name for path in (tmp_path / "checkpoint").iterdir()]


def test_executors_that_do_not_see_it_are_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"does not see /nonexistent/.* not on a file system"):
        check_executors(spark, Elsewhere(spark, str(tmp_path / "checkpoint")))


def test_executors_with_other_packages_are_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_versions", lambda: {"streamjoin": "0.0.1"})

    with pytest.raises(QueryError, match=r"and this job streamjoin 0\.0\.1: install the same"):
        check_executors(spark, Folder(spark, str(tmp_path / "checkpoint")))
