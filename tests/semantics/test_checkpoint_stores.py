"""Checkpoints on stores that are unreachable, unknown, or written by another process."""

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from job.checkpoint.folder import Folder
from job.spark.failures import failure_of


@pytest.mark.parametrize("scheme", ["s3a", "gs"])
def test_missing_client_of_a_store_is_an_error_with_the_remedy(
    spark: SparkSession, scheme: str
) -> None:
    with pytest.raises(Py4JJavaError) as raised:
        Folder(spark, f"{scheme}://bucket/join")

    failure = failure_of(raised.value, "b")
    assert "checkpoint" == failure.code
    assert "STREAMJOIN_JARS" in str(failure)


def test_store_that_does_not_answer_is_retried(spark: SparkSession) -> None:
    folder = Folder(spark, "hdfs://127.0.0.1:9/join")
    with pytest.raises(Py4JJavaError) as raised:
        folder.exists("query")

    failure = failure_of(raised.value, "b")
    assert failure.retryable
    assert "lost the checkpoint's file system" in str(failure)
    assert ":9 failed on" in str(failure)


class ReplacedOnce:
    """A file system that fails the first reader, as HDFS does when the file is replaced."""

    def __init__(self, files: Any) -> None:
        self._files = files
        self._fails = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open(self, path: Any) -> Any:
        if self._fails:
            self._fails = False
            path = path.suffix(".replaced")
        return self._files.open(path)


def test_file_that_is_replaced_while_it_is_read_is_read_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = Folder(spark, str(tmp_path))
    folder.write("lease.json", "{}")
    folder._files = ReplacedOnce(folder._files)

    assert "{}" == folder.text("lease.json")
