"""What PySpark's libraries log about the session."""

import logging
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from job.spark.session import _is_unreported


def java_error() -> Py4JJavaError:
    reference: Any = type("Reference", (), {"_target_id": "o1", "_gateway_client": None})()
    return Py4JJavaError("An error occurred while calling o1.fetch.", reference)


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [(java_error(), False), (Py4JNetworkError("the JVM has ended"), True), (ValueError("x"), True)],
)
def test_error_of_the_jvm_that_the_jvm_gets_back_is_not_logged(
    error: Exception, is_logged: bool
) -> None:
    event = (type(error), error, None)
    record = logging.LogRecord("py4j.clientserver", logging.ERROR, "", 0, "failed", None, event)

    assert is_logged is _is_unreported(record)


def test_event_without_an_error_is_logged() -> None:
    record = logging.LogRecord("py4j.clientserver", logging.INFO, "", 0, "closed", None, None)

    assert _is_unreported(record)
