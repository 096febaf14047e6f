"""Settings of the commit topic."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from job.delivery import commit_topic
from job.delivery.commit_topic import check_commit_topic_settings
from job.errors import TopicError
from tests.unit.specs import plan


@pytest.mark.parametrize(
    ("engine", "limit", "is_refused"),
    [
        ("micro_batch", 16_383, True),
        ("micro_batch", 16_384, False),
        ("micro_batch", 16_385, False),
        ("real_time", 524_287, True),
        ("real_time", 524_288, False),
        ("real_time", 524_289, False),
    ],
)
def test_commit_topic_accepts_exactly_the_largest_marker(
    monkeypatch: pytest.MonkeyPatch, engine: str, limit: int, *, is_refused: bool
) -> None:
    settings = {"cleanup.policy": "compact", "max.message.bytes": str(limit)}
    partitions = [SimpleNamespace(replicas=[1])] * 3
    monkeypatch.setattr(commit_topic, "_partitions", lambda *_: partitions)
    monkeypatch.setattr(commit_topic, "topic_settings", lambda *_: settings)
    kafka: Any = SimpleNamespace(client=None)
    made = plan(engine=engine, output__delivery="exactly_once")
    refused = pytest.raises(TopicError, match=rf"output\.commit_topic: .*bytes={limit}, and must")
    with refused if is_refused else nullcontext():
        check_commit_topic_settings(made, kafka)
