"""What PySpark's libraries log about the session, and how a session ends, without a JVM."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from job.spark import executors, session, state_stores
from job.spark.session import Jvm, _is_unreported


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


class Session:
    """A session with the tasks of a lookup of several Spark jobs: each must be cancelled."""

    def __init__(self) -> None:
        self.tasks = 2
        self.events: list[str] = []
        self.sparkContext = SimpleNamespace(cancelAllJobs=self._cancel)

    def _cancel(self) -> None:
        self.tasks -= 1

    def stop(self) -> None:
        self.events.append("stopped")


def test_state_lookups_are_cancelled_before_the_session_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "_TASKS_END_SECONDS", 5.0)
    monkeypatch.setattr(executors, "running_task_count", lambda found: found.tasks)
    monkeypatch.setattr(
        state_stores, "close_state_stores", lambda found: found.events.append("stores closed")
    )
    running = Session()
    jvm = Jvm.__new__(Jvm)
    jvm._session = running  # type: ignore[assignment]

    jvm.end_session()

    assert (0, ["stores closed", "stopped"]) == (running.tasks, running.events)
    assert jvm._session is None
