"""Task slots of the local master, and which JVM a query uses, without a JVM."""

from collections.abc import Callable
from threading import Timer
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import structlog

from job.errors import CheckpointInUseError, QueryError
from job.plan.real_time import LOOKUP_SLOTS, SPARE_SLOTS
from job.protocol.status import QueryState
from job.query import runtime
from job.query.runtime import Resources
from job.query.stats import QueryStats
from job.redaction import Redaction
from job.settings import JobSettings
from job.spark.listener import Reports
from tests.unit.checkpoint.folders import DocumentFolder
from tests.unit.specs import plan

OAUTH = {
    "protocol": "SASL_SSL",
    "mechanism": "OAUTHBEARER",
    "client_id": "joiner",
    "client_secret": "joiner",
    "token_endpoint": "https://idp.example.org/token",
}
"""Kafka's Java client requests tokens only from URLs in an option of the JVM."""


class Jvms:
    """Each JVM is started with the first session, whose master is recorded."""

    has_lost_its_session = False

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.masters: list[str] = []
        self.is_alive = True
        self.started = 1
        self.closed = 0
        self.queries_ended = 0
        self.cancelled = 0
        self.is_stuck = False
        monkeypatch.setattr(runtime, "Jvm", self._start)
        self.reports = Reports()
        monkeypatch.setattr(runtime, "listen", lambda *_: self.reports)

    def _start(self, *_: object) -> "Jvms":
        self.started += 1
        return self

    def session(self, settings: JobSettings, _: object) -> object:
        self.masters.append(settings.spark_master)
        return self

    def another_session(self, _: object) -> str:
        return "another session"

    def cancel_jobs(self) -> None:
        self.cancelled += 1

    def end_query(self) -> None:
        if self.is_stuck:
            raise QueryError("a task has not ended", retryable=False)
        self.queries_ended += 1

    def close(self) -> None:
        self.closed += 1


def resources(jvms: Jvms, master: str, **changes: Any) -> Resources:
    first: Any = jvms
    settings = JobSettings(spark_master=master)
    return Resources(
        plan(**changes), settings, Redaction(), QueryStats(), first, lambda: None, lambda _: None
    )


def test_command_is_possible_if_its_state_cannot_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    acquired = resources(Jvms(monkeypatch), "local[*]")

    def fail(error: Exception) -> Callable[[], NoReturn]:
        def checkpoint() -> NoReturn:
            raise error

        return checkpoint

    monkeypatch.setattr(acquired, "checkpoint", fail(OSError("No space left on device")))
    with structlog.testing.capture_logs() as logs:
        acquired.store_desired_state(QueryState.STOPPED)
    [log] = logs
    assert ("desired_state_not_stored", "STOPPED") == (log["event"], log["state"])
    assert "No space left on device" in log["reason"]
    monkeypatch.setattr(acquired, "checkpoint", fail(CheckpointInUseError("taken over")))
    with pytest.raises(CheckpointInUseError):
        acquired.store_desired_state(QueryState.STOPPED)


def test_first_reader_of_the_checkpoint_completes_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = DocumentFolder()
    completed: list[object] = []

    def complete(checkpoint: object) -> None:
        assert "lease.json" in folder.documents
        completed.append(checkpoint)
        if len(completed) == 1:
            raise OSError("No space left on device")

    monkeypatch.setattr(runtime, "Checkpoint", lambda *_: SimpleNamespace(folder=folder))
    monkeypatch.setattr(runtime, "complete_reset", complete)
    acquired = resources(Jvms(monkeypatch), "local[*]")
    with pytest.raises(OSError, match="No space left"):
        acquired.checkpoint()
    assert "lease.json" not in folder.documents

    first = acquired.checkpoint()
    acquired.checkpoint()
    assert [first] == completed[1:]
    acquired.release()


def test_local_master_has_slots_for_tasks_lookups_and_some_added_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jvms = Jvms(monkeypatch)
    acquired = resources(jvms, "local[*]")
    slots = 6 + LOOKUP_SLOTS + SPARE_SLOTS

    assert not acquired.provide_slots(6)
    acquired.session()
    assert not acquired.provide_slots(6 + SPARE_SLOTS)
    assert (f"local[{slots}]", 0) == (jvms.masters[-1], jvms.closed)

    assert acquired.provide_slots(7 + SPARE_SLOTS), "it releases the session"
    acquired.session()
    assert (f"local[{slots + SPARE_SLOTS + 1}]", 1) == (jvms.masters[-1], jvms.closed)


def test_slots_of_a_cluster_are_those_of_its_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    jvms = Jvms(monkeypatch)
    acquired = resources(jvms, "spark://master:7077")

    acquired.provide_slots(6)
    acquired.session()

    assert "spark://master:7077" == jvms.masters[-1]


@pytest.mark.parametrize("is_retried", [True, False])
def test_jvm_that_replaces_a_killed_one_starts_in_the_delay_before_the_retry(
    monkeypatch: pytest.MonkeyPatch, *, is_retried: bool
) -> None:
    jvms = Jvms(monkeypatch)
    acquired = resources(jvms, "local[*]")
    acquired.session()
    acquired.release_if_dead(is_retried=is_retried)
    assert (1, 0) == (jvms.started, jvms.closed)

    jvms.is_alive = False
    acquired.release_if_dead(is_retried=is_retried)
    assert (1 + is_retried, 1) == (jvms.started, jvms.closed)
    acquired.session()
    assert (2, 1) == (jvms.started, jvms.closed)

    acquired.release_if_dead(is_retried=True)
    acquired.release()  # the job ends before the retry
    assert (3, 3) == (jvms.started, jvms.closed)


def test_run_is_over_when_spark_has_reported_its_last_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The counters of the run must last until then: late rows were not counted."""
    jvms = Jvms(monkeypatch)
    acquired = resources(jvms, "local[*]")
    acquired.session()
    jvms.reports.run_ended("an earlier run")
    last_report = Timer(0.05, jvms.reports.run_ended, ["this run"])
    last_report.start()

    acquired.await_reports("this run")

    assert jvms.reports.are_complete("this run")


@pytest.mark.parametrize("is_alive", [True, False])
def test_reports_are_not_awaited_for_long_nor_of_a_killed_jvm(
    monkeypatch: pytest.MonkeyPatch, *, is_alive: bool
) -> None:
    monkeypatch.setattr(runtime, "REPORT_SECONDS", 0.05 if is_alive else 60.0)
    jvms = Jvms(monkeypatch)
    acquired = resources(jvms, "local[*]")
    acquired.session()
    jvms.is_alive = is_alive

    with structlog.testing.capture_logs() as logs:
        acquired.await_reports("this run")

    assert (["batches_not_reported"] if is_alive else []) == [log["event"] for log in logs]


@pytest.mark.parametrize("changes", [{}, {"engine": "real_time"}])
def test_successor_continues_in_the_jvm_with_the_slots_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    jvms: Any = Jvms(monkeypatch)
    acquired = resources(jvms, "local[*]")
    acquired.session()

    kept = acquired.hand_over(plan(**changes))
    assert jvms is kept
    successor = resources(jvms, "local[*]")
    assert not successor.provide_slots(6)
    successor.session()

    assert (1, 0, 1) == (jvms.started, jvms.closed, jvms.queries_ended)
    assert f"local[{6 + LOOKUP_SLOTS + SPARE_SLOTS}]" == jvms.masters[-1]


def test_lookups_are_cancelled_in_a_session_that_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jvms = Jvms(monkeypatch)
    acquired = resources(jvms, "local[*]")
    acquired.cancel_lookups()
    assert 0 == jvms.cancelled

    acquired.session()
    acquired.cancel_lookups()
    assert 1 == jvms.cancelled


def test_successor_with_other_options_of_the_jvm_starts_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jvms = Jvms(monkeypatch)
    acquired = resources(jvms, "local[*]")
    acquired.session()

    assert acquired.hand_over(plan(kafka__security=OAUTH)) is None
    assert (1, 0) == (jvms.closed, jvms.queries_ended)


@pytest.mark.parametrize(
    ("master", "old", "new", "session"),
    [
        ("local[*]", {}, {"engine": "real_time"}, "another session"),
        ("local[*]", {"engine": "real_time"}, {}, None),
        ("local[*]", {}, {"kafka__security": OAUTH}, None),
        ("spark://master:7077", {}, {}, None),
    ],
    ids=["same JVM", "no task slot", "another JVM", "executors of another application"],
)
def test_warm_up_needs_free_slots_in_the_jvm_of_the_new_query(
    monkeypatch: pytest.MonkeyPatch,
    master: str,
    old: dict[str, Any],
    new: dict[str, Any],
    session: object,
) -> None:
    jvms = Jvms(monkeypatch)
    acquired = resources(jvms, master, **old)
    assert acquired.warm_up_session(plan(**new)) is None
    acquired.session()

    assert session == acquired.warm_up_session(plan(**new))


def test_jvm_whose_session_cannot_be_ended_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    jvms = Jvms(monkeypatch)
    jvms.is_stuck = True
    acquired = resources(jvms, "local[*]")
    acquired.session()

    assert acquired.hand_over(plan()) is None
    assert 1 == jvms.closed
    assert acquired.hand_over(plan()) is None, "nothing is acquired any more"
