"""The failure of a run of the query, as clients see it."""

import pytest

from job.errors import BrokerError
from job.query.failed_run import failure_of_run


@pytest.mark.parametrize(
    ("batch_id", "again"), [(None, "starts the query again"), (0, "runs batch 0 again")]
)
def test_unexpected_error_names_class_origin_batch_and_the_way_on(
    batch_id: int | None, again: str
) -> None:
    with pytest.raises(BufferError) as raised:
        raise BufferError("Local: Queue full")
    failure = failure_of_run(raised.value, "b", batch_id, session_is_lost=False)

    assert ("unexpected", True) == (failure.code, failure.retryable)
    text = str(failure)
    assert text.startswith("unexpected error BufferError: Local: Queue full (at ")
    assert f"test_failed_run.py:{raised.tb.tb_lineno} in test_unexpected_error" in text
    assert f"The job {again}, and nothing is lost. If the error persists, read" in text


def test_other_errors_have_their_own_remedy() -> None:
    failure = BrokerError("no broker answers")

    assert failure is failure_of_run(failure, "b", 7, session_is_lost=False)


def test_lost_application_is_started_again() -> None:
    failure = failure_of_run(RuntimeError("SparkContext"), "b", 7, session_is_lost=True)

    assert failure.retryable
    assert "ended the application: unexpected error RuntimeError: SparkContext" in str(failure)
    assert "The job starts it again" in str(failure)
