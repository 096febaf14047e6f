"""`streamjoin check` of a spec whose checkpoint exists."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from job.check.recorded import RecordedQuery
from job.checkpoint.local import local_path
from job.kafka import kafka_admin, retention, topic_ids
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.retention import Gap
from job.kafka.security import KafkaAccess
from job.kafka.topic_ids import Topic
from job.plan.fingerprint import fingerprint
from job.plan.plan import JoinPlan
from tests.sql_worker import SQL
from tests.unit.specs import plan

CLIENT: Any = None
IDS = {"impressions": "i-1", "clicks": "c-1", "attributed": "a-1"}


def recorded(folder: Path, **changes: Any) -> JoinPlan:
    """A plan with a checkpoint whose query has read up to offset 5."""
    made = plan(checkpoint=str(folder))
    log = folder / "query"
    for name in ("offsets", "commits"):
        (log / name).mkdir(parents=True)
    sources = 'left:{"impressions":{"0":5}}\nright:{"clicks":{"0":2}}'
    (log / "offsets" / "0").write_text(f'v2\n{{"batchWatermarkMs":0}}\n{sources}')
    (log / "commits" / "0").write_text("v1\n{}")
    for name, content in (
        ("fingerprint.json", {"settings": fingerprint(made)}),
        ("topics.json", {"topics": IDS}),
    ):
        (folder / name).write_text(json.dumps({"format": 1, **content}))
    return plan(checkpoint=str(folder), **changes)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Ids of the topics, and lost offsets."""
    state: dict[str, Any] = {"ids": dict(IDS), "gaps": [], "read": None}

    def topics(_: Any, names: Iterable[str]) -> dict[str, Topic]:
        return {name: Topic(state["ids"][name], 1) for name in names}

    def gaps(_: Any, __: Any, read: Any) -> list[Gap]:
        state["read"] = read
        return list(state["gaps"])

    monkeypatch.setattr(topic_ids, "topics", topics)
    monkeypatch.setattr(retention, "find_gaps", gaps)
    monkeypatch.setattr(kafka_admin, "admin", lambda _: CLIENT)
    return state


def found(made: JoinPlan) -> list[tuple[str, str]]:
    query = RecordedQuery(made, SQL, None)
    on_broker = made.reading({"left": (1,), "right": (1,)})
    of_topics = query.of_topics(on_broker, KafkaAdmin(KafkaAccess("localhost:9092")))
    return [(each.level, each.text) for each in (*query.findings, *of_topics)]


def test_checkpoint_that_fits_is_reported(tmp_path: Path, broker: dict[str, Any]) -> None:
    made = recorded(tmp_path / "c")

    text = f"file:{tmp_path}/c has the settings and topics of the spec"
    assert [("info", text)] == found(made)
    assert {"left": {0: 5}, "right": {0: 2}} == broker["read"]


@pytest.mark.usefixtures("broker")
def test_checkpoint_whose_reset_was_interrupted_is_not_compared(tmp_path: Path) -> None:
    made = recorded(tmp_path, left__watermark_delay="1 minute")
    (tmp_path / "reset.json").write_text("")

    text = f"a reset of {tmp_path} is not complete: the next start completes it"
    assert [("warning", text)] == found(made)


@pytest.mark.usefixtures("broker")
def test_frozen_setting_that_differs_is_a_problem(tmp_path: Path) -> None:
    [(level, text)] = found(recorded(tmp_path, left__watermark_delay="1 minute"))

    assert level == "problem"
    assert "left.watermark_delay: frozen as 10 seconds, the spec has 1 minute" in text


def test_topic_that_was_created_again_is_a_problem(tmp_path: Path, broker: dict[str, Any]) -> None:
    broker["ids"]["clicks"] = "c-2"
    broker["gaps"] = [Gap("right", "clicks", 0, 2, 0, 0)]  # its offsets are not compared
    [(level, text)] = found(recorded(tmp_path))

    assert level == "problem"
    assert "right.topic clicks (topic id c-1 in the checkpoint, c-2 on the broker)" in text


def test_records_that_were_deleted_before_they_were_read_are_a_problem(
    tmp_path: Path, broker: dict[str, Any]
) -> None:
    broker["gaps"] = [Gap("left", "impressions", 0, 5, 9, 30)]
    [(level, text)] = found(recorded(tmp_path))

    assert level == "problem"
    assert "impressions partition 0: offsets 5 to 8 (4 records)" in text
    assert "`streamjoin checkpoint skip-gap SPEC`" in text


@pytest.mark.usefixtures("broker")
def test_checkpoint_that_another_query_continues_is_a_problem(tmp_path: Path) -> None:
    made = recorded(tmp_path)
    changed = {"format": 1, "checkpoint": "file:/new"}
    (tmp_path / "changed.json").write_text(json.dumps(changed))

    [(level, text)] = found(made)
    assert ("problem", True) == (level, "file:/new continues it" in text)


@pytest.mark.usefixtures("broker")
def test_checkpoint_without_its_settings_is_a_problem(tmp_path: Path) -> None:
    made = recorded(tmp_path)
    (tmp_path / "fingerprint.json").unlink()

    [(level, text)] = found(made)
    assert ("problem", True) == (level, "contains a checkpoint but no fingerprint.json" in text)


@pytest.mark.usefixtures("broker")
def test_missing_checkpoint_is_not_reported_and_another_file_system_is(tmp_path: Path) -> None:
    made = recorded(tmp_path)
    shutil.rmtree(tmp_path / "query")
    assert [] == found(made)
    assert [] == found(plan(checkpoint=str(tmp_path / "missing")))

    [(level, text)] = found(plan(checkpoint="s3a://bucket/join"))
    assert ("info", True) == (level, "s3a://bucket/join is not on this machine" in text)


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/data/a", "/data/a"),
        ("data/a", "data/a"),
        ("file:/data/a", "/data/a"),
        ("file:///data/a", "/data/a"),
        ("file://localhost/data/a", "/data/a"),
        ("/data/a:b", "/data/a:b"),
        ("hdfs://name/a", None),
    ],
)
def test_local_path_of_a_location(location: str, path: str | None) -> None:
    assert (None if path is None else Path(path)) == local_path(location)
