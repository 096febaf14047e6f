"""GET /v1/query/offsets."""

from pathlib import Path

from job.protocol.reports import SideOffsets
from tests.unit.service.builders import (
    batch,
    broker_report,
    just_polled,
    serving,
    status,
    status_after,
)
from tests.unit.service.calls import call, settings


def test_offsets_are_returned_by_side_and_partition(path: Path) -> None:
    with serving(path, status_after(batch(), brokers=just_polled())):
        body = call("GET", "/v1/query/offsets", settings(path)).json()

    assert {
        "topic": "impressions",
        "partitions": {
            "0": {
                "read": 90,
                "earliest": 10,
                "latest": 100,
                "behind_latest": 10,
                "retention_headroom": 80,
                "event_time": None,
            },
            "1": {
                "read": 100,
                "earliest": 40,
                "latest": 105,
                "behind_latest": 5,
                "retention_headroom": 60,
                "event_time": "2026-11-20T11:59:57.500000Z",
            },
        },
    } == body["left"]
    assert "clicks" == body["right"]["topic"]
    assert body["error"] is None


def test_unknown_offsets_are_null(path: Path) -> None:
    new = SideOffsets(topic="impressions", read={0: 5}, latest={0: 5, 1: 2}, earliest={1: 0})
    with serving(path, status(brokers=broker_report(left=new, error="x"))):
        body = call("GET", "/v1/query/offsets", settings(path)).json()

    partitions = body["left"]["partitions"]
    assert [5, None] == [partitions[number]["read"] for number in ("0", "1")]
    assert [None, 0] == [partitions[number]["earliest"] for number in ("0", "1")]
    assert [None, None] == [partitions[number]["retention_headroom"] for number in ("0", "1")]
    assert ("2026-11-20T12:00:00Z", "x") == (body["answered_at"], body["error"])


def test_end_is_not_before_the_position_that_was_read_since_the_poll(path: Path) -> None:
    read_since = SideOffsets(topic="impressions", read={0: 8, 1: 2}, latest={0: 5, 1: 3})
    with serving(path, status(brokers=just_polled(left=read_since))):
        body = call("GET", "/v1/query/offsets", settings(path)).json()

    shown = body["left"]["partitions"]
    assert [(8, 8, 0), (2, 3, 1)] == [
        (shown[number]["read"], shown[number]["latest"], shown[number]["behind_latest"])
        for number in ("0", "1")
    ]


def test_partitions_are_unknown_before_the_first_poll_of_the_brokers(path: Path) -> None:
    with serving(path, status()):
        body = call("GET", "/v1/query/offsets", settings(path)).json()

    unknown = {"topic": None, "partitions": {}}
    assert {"answered_at": None, "error": None, "left": unknown, "right": unknown} == body


def test_partitions_of_several_topics_name_their_topic(path: Path) -> None:
    several = SideOffsets(topic="eu, us", read={0: 5, 1024: 1}, latest={0: 5, 1024: 3})
    topics = {"left": ["eu", "us"]}
    brokers = just_polled().model_copy(update={"left": several})
    with serving(path, status(brokers=brokers, topics=topics)):
        app = settings(path)
        body = call("GET", "/v1/query/offsets", app).json()
        query = call("GET", "/v1/query", app).json()
        metrics = call("GET", "/metrics", app).text

    lag = {name: each["behind_latest"] for name, each in body["left"]["partitions"].items()}
    assert {"eu/0": 0, "us/0": 2} == lag == query["left"]["offsets_behind_latest"]
    assert {"0", "1"} == body["right"]["partitions"].keys()
    assert 'streamjoin_offsets_behind_latest{partition="us/0",side="left"} 2' in metrics or (
        'streamjoin_offsets_behind_latest{side="left",partition="us/0"} 2' in metrics
    )
