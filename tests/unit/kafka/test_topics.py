"""`streamjoin topics create`: what it creates, and what it reports of the broker."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from job.delivery.commit_topic import new_commit_topic
from job.errors import BrokerError, TopicError
from job.kafka import kafka_admin, topics
from job.kafka.topics import create_missing_topics
from tests.unit.specs import plan


class Broker:
    """An AdminClient of a broker with the topic `clicks`."""

    def __init__(self, existing: tuple[str, ...] | None = ("clicks",)) -> None:
        """`existing` None: no broker answers."""
        self.created: dict[str, int] = {}
        self.existing = existing

    def poll(self, _: float) -> None: ...

    def list_topics(self, **_: Any) -> Any:
        if self.existing is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no answer"))
        return type("Metadata", (), {"topics": dict.fromkeys(self.existing)})

    def create_topics(self, wanted: list[Any], **_: Any) -> dict[str, "Future[None]"]:
        self.created |= {topic.topic: topic.num_partitions for topic in wanted}
        done: Future[None] = Future()
        done.set_result(None)
        return {topic.topic: done for topic in wanted}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    created = Broker()
    monkeypatch.setattr(kafka_admin, "admin", lambda _: created)
    return created


def create(*, with_inputs: bool = False, **changes: Any) -> list[str]:
    """`role name`, with `new` before a created topic."""
    made = plan(**changes)
    used = create_missing_topics(made, new_commit_topic(made), print, with_inputs=with_inputs)
    return [f"{'new ' if each.is_new else ''}{each.role} {each.name}" for each in used]


def test_missing_input_is_named_and_nothing_is_created(broker: Broker) -> None:
    with pytest.raises(TopicError, match=r"left: topic impressions\. .* --inputs"):
        create()

    assert {} == broker.created


def test_missing_inputs_are_created_if_that_is_requested(broker: Broker) -> None:
    assert ["new left input impressions", "right input clicks", "new output attributed"] == create(
        with_inputs=True
    )
    assert {"impressions": -1, "attributed": -1} == broker.created


def test_topics_that_the_join_writes_are_created(broker: Broker) -> None:
    used = create(
        left__topic="clicks",
        on_bad_record=None,
        dead_letter={"topic": "dead"},
        output__delivery="exactly_once",
    )

    assert [
        "left and right input clicks",
        "new output attributed",
        "new dead letters dead",
        "new commit topic tested.commits",
    ] == used
    # Two state partitions and the dead letters.
    assert {"attributed": -1, "dead": -1, "tested.commits": 3} == broker.created


def test_host_without_an_address_is_named_and_ends_the_wait(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.existing = None
    monkeypatch.setattr(topics, "RESOLVE_SECONDS", 0.0)
    servers = "no-such-host.invalid:9092,[no-such-host-2.invalid]:9092"

    with pytest.raises(BrokerError, match=r"no address of no-such-host\.invalid, no-such-host-2"):
        create(kafka={"bootstrap_servers": servers})

    assert "Waiting up to 120 s for a broker" in capsys.readouterr().out
