"""Errors of librdkafka as errors of the commit protocol."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from job.delivery.commit_protocol import (
    AbortedError,
    NotDeliveredError,
    ProducerFencedError,
    Step,
    UnavailableError,
    UnknownOutcomeError,
)
from job.delivery.producers import failure_of


def error(code: int, *, requires_abort: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, "reason", txn_requires_abort=requires_abort))


@pytest.mark.parametrize(
    ("step", "raised", "expected"),
    [
        (Step.INIT, error(KafkaError._TIMED_OUT), UnavailableError),
        (Step.WRITE_ROWS, error(KafkaError._STATE), AbortedError),
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
            for step in (Step.INIT, Step.WRITE_ROWS, Step.COMMIT)
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
