from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from job.kafka.clients import LATEST, answer, list_offsets


def test_request_without_an_answer_is_a_timeout_of_kafka() -> None:
    """Callers catch KafkaException; a TimeoutError ended a join while its broker stood still."""
    with pytest.raises(KafkaException, match="no answer within 0 s") as raised:
        answer(Future[int](), seconds=0.01)
    assert KafkaError._TIMED_OUT == raised.value.args[0].code()


def test_answer_of_a_broker_is_returned_or_raised() -> None:
    request = Future[int]()
    request.set_result(3)
    assert 3 == answer(request)

    refused = Future[int]()
    refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        answer(refused)


class NewClient:
    """An AdminClient that records its requests."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def list_topics(self, *_: object) -> None:
        self.requests.append("list_topics")

    def list_offsets(self, places: dict[Any, Any], **_: object) -> dict[Any, Future[Any]]:
        return {
            place: self._answered("list_offsets", SimpleNamespace(offset=7)) for place in places
        }

    def _answered(self, request: str, content: Any) -> Future[Any]:
        self.requests.append(request)
        answered = Future[Any]()
        answered.set_result(content)
        return answered


def test_client_connects_before_its_first_request_for_offsets() -> None:
    """Otherwise librdkafka may wait for 3 s."""
    client: Any = NewClient()
    assert {0: 7} == list_offsets(client, "clicks", [0], LATEST)
    assert {1: 7} == list_offsets(client, "clicks", [1], LATEST)
    assert ["list_topics", "list_topics", "list_offsets", "list_offsets"] == client.requests
