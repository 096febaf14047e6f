"""What PySpark's libraries log about the session, and how a session ends, without a JVM."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from job.errors import SetupError
from job.plan.tuning import CONF as PLANNED_CONF
from job.redaction import Redaction
from job.settings import JobSettings
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
    """The tasks of a lookup of several Spark jobs, each of which must be cancelled."""

    def __init__(self) -> None:
        self.tasks = 2
        self.events: list[str] = []
        self.sparkContext = SimpleNamespace(cancelAllJobs=self._cancel)
        self.changed: dict[str, str | None] = {}
        self.conf = SimpleNamespace(
            set=self.changed.__setitem__, unset=lambda name: self.changed.update({name: None})
        )

    def newSession(self) -> "Session":  # noqa: N802
        self.events.append("another session")
        return Session()

    def _cancel(self) -> None:
        self.tasks -= 1

    def stop(self) -> None:
        self.events.append("stopped")


LOCAL = JobSettings(spark_master="local[2]")
CONF = {"spark.speculation": "false", "spark.sql.a": "1", "spark.sql.b": "1"}


@pytest.fixture
def jvm(monkeypatch: pytest.MonkeyPatch) -> Jvm:
    monkeypatch.setattr(session, "_TASKS_END_SECONDS", 5.0)
    monkeypatch.setattr(executors, "running_task_count", lambda found: found.tasks)
    monkeypatch.setattr(
        state_stores, "close_state_stores", lambda found: found.events.append("stores closed")
    )
    made = Jvm.__new__(Jvm)
    made._session = made._application = None
    made._has_ended = False
    monkeypatch.setattr(made, "_new_application", lambda _: Session())
    return made


def ended_session(jvm: Jvm) -> Session:
    ended: Any = jvm.session(LOCAL, CONF)
    assert ended is jvm.session(LOCAL, {})
    jvm.end_query()
    return ended  # type: ignore[no-any-return]


def test_state_lookups_are_cancelled_before_the_state_stores_are_closed(jvm: Jvm) -> None:
    ended = ended_session(jvm)

    assert (0, ["stores closed"]) == (ended.tasks, ended.events)


def test_next_query_uses_another_session_of_the_application_with_its_own_conf(jvm: Jvm) -> None:
    ended = ended_session(jvm)
    conf = {"spark.speculation": "false", "spark.sql.a": "2", "spark.sql.c": "3"}

    following: Any = jvm.session(LOCAL, conf)

    assert ["stores closed", "another session"] == ended.events
    assert {"spark.sql.a": "2", "spark.sql.b": None, "spark.sql.c": "3"} == following.changed
    assert following is jvm.session(LOCAL, conf)


@pytest.mark.parametrize(
    ("master", "conf"),
    [("local[9]", CONF), ("local[2]", {**CONF, "spark.speculation": "true"})],
)
def test_other_task_slots_or_settings_of_the_application_start_another_one(
    master: str, conf: dict[str, str], jvm: Jvm
) -> None:
    ended = ended_session(jvm)

    following = jvm.session(JobSettings(spark_master=master), conf)

    assert following is not ended
    assert ["stores closed", "stopped"] == ended.events


@pytest.mark.parametrize("option", ["-Duser.timezone=Asia/Tokyo", "-Dfile.encoding=UTF-16"])
def test_java_option_that_overrides_one_of_the_job_is_refused(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_JAVA_OPTIONS", f"-Xss32m {option}")

    with pytest.raises(SetupError, match=f"_JAVA_OPTIONS contains {option}: Java"):
        Jvm(LOCAL, PLANNED_CONF["spark.driver.extraJavaOptions"], Redaction())
