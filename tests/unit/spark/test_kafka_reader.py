"""The reader in the place of the Kafka source's own, without a JVM."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from job.spark.kafka_reader import _LatestOffsets, _Reader
from tests.java_error import JavaError

LATEST = json.dumps({"impressions": {"0": 50, "1": 70}})
STARTS = json.dumps({"impressions": {"0": 5, "1": 7}})


class Known:
    """A Scala Option of offsets, which are JSON here."""

    def __init__(self, text: str | None) -> None:
        self._text = text

    def isEmpty(self) -> bool:  # noqa: N802
        return self._text is None

    def get(self) -> str:
        assert self._text is not None
        return self._text


class Own:
    """Spark's reader."""

    def __init__(self) -> None:
        self.requests = 0

    def fetchLatestOffsets(self, known: Known) -> str:  # noqa: ARG002, N802
        self.requests += 1
        return LATEST

    def fetchEarliestOffsets(self, *partitions: str) -> str:  # noqa: N802
        return f"earliest of {partitions}"


# What turns offsets into JSON and back leaves JSON as it is.
_JSON_UTILS = SimpleNamespace(partitionOffsets=lambda text: text)
SPARK = SimpleNamespace(**{"org.apache.spark.sql.kafka010.JsonUtils": _JSON_UTILS})


def reader(ends: Any) -> _Reader:
    return _Reader(SPARK, _LatestOffsets(Own(), 0.0), ends, lambda _: None)


def test_lower_ends_take_the_place_of_the_latest_offsets() -> None:
    calls: list[tuple[str, str]] = []

    def ends(starts: str, latest: str) -> str:
        calls.append((starts, latest))
        return json.dumps({"impressions": {"0": 20, "1": 7}})

    found = reader(ends).fetchLatestOffsets(Known(STARTS))

    assert {"impressions": {"0": 20, "1": 7}} == json.loads(found)
    assert [(STARTS, LATEST)] == calls


def test_without_a_limit_the_latest_offsets_are_those_of_spark() -> None:
    assert LATEST == reader(lambda *_: None).fetchLatestOffsets(Known(STARTS))


def test_nothing_is_limited_if_spark_does_not_report_what_it_has_read() -> None:
    def ends(*_: str) -> str:
        raise AssertionError("there is nothing to limit")

    assert LATEST == reader(ends).fetchLatestOffsets(Known(None))


@pytest.mark.parametrize(("valid_seconds", "requests"), [(0.0, 2), (3_600.0, 1)])
def test_latest_offsets_are_requested_again_once_they_are_no_longer_valid(
    valid_seconds: float, requests: int
) -> None:
    own = Own()
    latest = _LatestOffsets(own, valid_seconds)

    assert [LATEST, LATEST] == [latest.fetch(Known(STARTS)), latest.fetch(Known(STARTS))]
    assert requests == own.requests


def test_all_other_calls_go_to_the_reader_of_spark() -> None:
    assert "earliest of ('one',)" == reader(None).fetchEarliestOffsets("one")
    assert not hasattr(reader(None), "_get_object_id")


def test_error_of_another_call_reaches_spark_without_stack_traces() -> None:
    """Spark searches its text: see stopped_query.py."""
    text = "An error occurred while calling o7.plan.\n: java.lang.InterruptedException\n\tat a.B(B)"

    class Interrupted(Own):
        def planInputPartitions(self) -> None:  # noqa: N802
            raise JavaError(text)

    recorded: list[object] = []
    stopped = _Reader(SPARK, _LatestOffsets(Interrupted(), 0.0), lambda *_: None, recorded.append)

    with pytest.raises(Exception, match=r"InterruptedException$") as raised:
        stopped.planInputPartitions()
    assert "Py4JJavaError" == type(raised.value).__name__
    assert 1 == len(recorded)
