"""One Spark session for all tests without a broker."""

import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.semantics.spark_session import start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start_session()
    yield session
    session.stop()


@pytest.fixture
def same_python(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's workers find the packages of the tests."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
