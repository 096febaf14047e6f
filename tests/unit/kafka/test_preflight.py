"""The snapshot of the topics that a start checks and uses."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from confluent_kafka import KafkaError, KafkaException

from job.dataflow.written import TopicLimits
from job.delivery.commit_topic import check_commit_topic
from job.delivery.topic_limits import limits_of
from job.errors import BrokerError, TopicError
from job.kafka import kafka_admin
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.preflight import check_topics
from job.kafka.security import KafkaAccess
from tests.unit.specs import plan

PLAN = plan(
    output__delivery="exactly_once",
    on_bad_record=None,
    dead_letter={"topic": "dead"},
    output__key="left.ad_id",
)


def answered(result: Any) -> "Future[Any]":
    made: Future[Any] = Future()
    if isinstance(result, int):
        made.set_exception(KafkaException(KafkaError(result)))
    else:
        made.set_result(result)
    return made


class Client:
    """As AdminClient. An int is the code of an error."""

    def __init__(self) -> None:
        self.partitions = {"impressions": 3, "clicks": 2, "attributed": 5, "dead": 1}
        self.settings: dict[str, Any] = {
            "attributed": {"max.message.bytes": "2000", "cleanup.policy": "compact"},
            "dead": {"max.message.bytes": "20000"},
        }
        self.replicas = {"attributed": [3, 3, 2, 3, 3]}
        self.requests: list[str] = []

    def poll(self, seconds: float) -> None:
        del seconds

    def describe_topics(self, topics: Any, **_: Any) -> "dict[str, Future[Any]]":
        self.requests += topics.topic_names
        return {name: answered(self._description(name)) for name in topics.topic_names}

    def _description(self, name: str) -> Any:
        if name not in self.partitions:
            return KafkaError.UNKNOWN_TOPIC_OR_PART
        leader = SimpleNamespace(id=1)
        count = self.partitions[name]
        partitions = [
            SimpleNamespace(id=number, leader=leader, replicas=[leader] * replicas)
            for number, replicas in enumerate(self.replicas.get(name, [1] * count))
        ]
        return SimpleNamespace(partitions=partitions, authorized_operations=None)

    def describe_configs(self, resources: Any, **_: Any) -> "dict[Any, Future[Any]]":
        (resource,) = resources
        self.requests.append(f"{resource.name}: settings")
        settings = self.settings[resource.name]
        if isinstance(settings, dict):
            settings = {name: SimpleNamespace(value=value) for name, value in settings.items()}
        return {resource: answered(settings)}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr(kafka_admin, "admin", lambda _: made)
    return made


@pytest.fixture
def kafka(client: Client) -> KafkaAdmin:
    del client
    return KafkaAdmin(KafkaAccess("localhost:9092"))


def test_plan_and_limits_of_a_start_need_no_further_request(
    client: Client, kafka: KafkaAdmin
) -> None:
    topics = check_topics(PLAN, kafka)
    requests = [*sorted([*client.partitions, "tested.commits"]), "attributed: settings"]
    assert [*requests, "dead: settings"] == client.requests

    made = topics.plan_with_partitions(PLAN)
    assert ((3,), (2,), 5) == (
        made.left.partition_counts,
        made.right.partition_counts,
        made.output.partitions,
    )
    assert TopicLimits(2000, 20000, requires_key=True) == limits_of(topics)
    assert [*requests, "dead: settings"] == client.requests


def test_settings_that_the_user_may_not_read_are_logged_and_taken_for_the_defaults(
    client: Client, kafka: KafkaAdmin
) -> None:
    client.settings["dead"] = KafkaError.TOPIC_AUTHORIZATION_FAILED
    with structlog.testing.capture_logs() as logs:
        assert TopicLimits(2000, 1_048_588, requires_key=True) == limits_of(
            check_topics(PLAN, kafka)
        )
    assert [("topic_settings_not_read", "dead")] == [(log["event"], log["topic"]) for log in logs]


def test_broker_that_does_not_return_the_settings_is_an_error(
    client: Client, kafka: KafkaAdmin
) -> None:
    client.settings["attributed"] = KafkaError._TIMED_OUT
    with pytest.raises(BrokerError, match="no broker answers at localhost:9092"):
        check_topics(PLAN, kafka)


def test_topics_with_too_few_replicas_for_any_write_are_all_named(
    client: Client, kafka: KafkaAdmin
) -> None:
    client.settings["attributed"]["min.insync.replicas"] = "3"
    client.settings["dead"]["min.insync.replicas"] = "2"
    with pytest.raises(TopicError) as refused:
        check_topics(PLAN, kafka)
    output, dead_letter = str(refused.value).splitlines()
    assert (
        "output.topic: attributed has min.insync.replicas=3 and a partition with only 2" in output
    )
    assert "dead_letter.topic: dead has min.insync.replicas=2" in dead_letter


def test_commit_topic_with_too_few_replicas_for_any_write_is_refused(
    client: Client, kafka: KafkaAdmin
) -> None:
    client.partitions["tested.commits"] = 3
    client.settings["tested.commits"] = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    with pytest.raises(
        TopicError, match=r"^output\.commit_topic: tested\.commits has min\.insync\.replicas=2"
    ):
        check_commit_topic(PLAN, kafka)


def test_only_the_commit_topic_may_be_missing(client: Client, kafka: KafkaAdmin) -> None:
    assert "tested.commits" not in check_topics(PLAN, kafka).partitions
    del client.partitions["dead"]
    with pytest.raises(TopicError, match=r"dead_letter\.topic dead: kafka-topics\.sh") as refused:
        check_topics(PLAN, kafka)
    assert "--create --topic dead" in str(refused.value)
    assert "--partitions" not in str(refused.value)  # as `streamjoin topics create`
