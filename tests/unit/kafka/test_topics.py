"""`streamjoin topics create` does not create an input whose name may be a typing error."""

from concurrent.futures import Future
from typing import Any

import pytest

from job.errors import TopicError
from job.kafka import topics
from job.kafka.topics import create_missing_topics
from tests.unit.specs import plan


class Broker:
    """An AdminClient of a broker with the topic `clicks`."""

    def __init__(self) -> None:
        self.created: list[str] = []

    def list_topics(self, **_: Any) -> Any:
        return type("Metadata", (), {"topics": {"clicks": None}})

    def create_topics(self, wanted: list[Any], **_: Any) -> dict[str, "Future[None]"]:
        self.created += [topic.topic for topic in wanted]
        done: Future[None] = Future()
        done.set_result(None)
        return {topic.topic: done for topic in wanted}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    created = Broker()
    monkeypatch.setattr(topics, "admin", lambda _: created)
    return created


def test_missing_input_is_named_and_nothing_is_created(broker: Broker) -> None:
    with pytest.raises(TopicError, match=r"left: topic impressions\. .* --inputs"):
        create_missing_topics(plan(), with_inputs=False)

    assert [] == broker.created


def test_missing_inputs_are_created_if_that_is_requested(broker: Broker) -> None:
    assert ["impressions", "attributed"] == create_missing_topics(plan(), with_inputs=True)
    assert ["impressions", "attributed"] == broker.created


def test_topics_that_the_join_writes_are_created(broker: Broker) -> None:
    existing = plan(left__topic="clicks", right__topic="clicks")

    assert ["attributed"] == create_missing_topics(existing, with_inputs=False)
    assert ["attributed"] == broker.created
