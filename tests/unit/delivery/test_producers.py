"""Errors of librdkafka as errors of the commit protocol."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from job.delivery import producers
from job.delivery.commit_protocol import (
    AbortedError,
    NotDeliveredError,
    ProducerFencedError,
    Step,
    UnavailableError,
    UnknownOutcomeError,
)
from job.delivery.producers import failure_of


def test_producer_connects_before_it_is_initialized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise librdkafka may find the coordinator only after 0.5 s."""
    calls: list[str] = []
    monkeypatch.setattr(
        producers,
        "Producer",
        lambda _: SimpleNamespace(
            list_topics=lambda *_: calls.append("list_topics"),
            init_transactions=lambda _: calls.append("init_transactions"),
        ),
    )

    producers.init_producer({}, "commits")

    assert ["list_topics", "list_topics", "init_transactions"] == calls


def error(code: int, *, requires_abort: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, "reason", txn_requires_abort=requires_abort))


@pytest.mark.parametrize(
    ("step", "raised", "expected"),
    [
        (Step.INIT, error(KafkaError._TIMED_OUT), UnavailableError),
        (Step.WRITE_MARKER, error(KafkaError._STATE), AbortedError),
        (Step.COMMIT, error(KafkaError._MSG_TIMED_OUT, requires_abort=True), AbortedError),
        # Neither of these shows whether the broker has committed.
        (Step.COMMIT, error(KafkaError._TIMED_OUT), UnknownOutcomeError),
        (Step.COMMIT, error(KafkaError._FATAL), UnknownOutcomeError),
        *(
            (
                step,
                error(code, requires_abort=code == KafkaError.INVALID_PRODUCER_EPOCH),
                ProducerFencedError,
            )
            for step in (Step.INIT, Step.WRITE_MARKER, Step.COMMIT)
            for code in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, 90)
        ),
    ],
)
def test_error_of_a_step_is_mapped(
    step: Step, raised: KafkaException, expected: type[NotDeliveredError]
) -> None:
    assert expected is type(failure_of(step, raised))


@pytest.mark.parametrize("step", [Step.INIT, Step.COMMIT])
@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (KafkaError.NOT_LEADER_FOR_PARTITION, True),
    ],
)
def test_only_transient_errors_are_retried(step: Step, code: int, *, retryable: bool) -> None:
    failure = failure_of(step, error(code, requires_abort=True))

    assert isinstance(failure, UnavailableError | AbortedError)
    assert retryable is failure.retryable
    assert retryable is (str(failure) == "reason")  # a remedy follows the reason
