from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from job.kafka.clients import answer


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
