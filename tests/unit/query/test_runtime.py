"""Task slots of the local master, without a JVM."""

from typing import Any

import pytest

from job.plan.real_time import LOOKUP_SLOTS, SPARE_SLOTS
from job.query import runtime
from job.query.runtime import Resources
from job.query.stats import QueryStats
from job.redaction import Redaction
from job.settings import JobSettings
from tests.unit.specs import plan


class Jvms:
    """Each JVM is started with the first session, whose master is recorded."""

    has_lost_its_session = False

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.masters: list[str] = []
        self.is_alive = True
        self.started = 1
        self.closed = 0
        monkeypatch.setattr(runtime, "Jvm", self._start)
        for name in ("trim_hadoop_conf", "listen"):
            monkeypatch.setattr(runtime, name, lambda *_: None)

    def _start(self, *_: object) -> "Jvms":
        self.started += 1
        return self

    def session(self, settings: JobSettings, _: object) -> object:
        self.masters.append(settings.spark_master)
        return self

    def close(self) -> None:
        self.closed += 1


def resources(jvms: Jvms, master: str) -> Resources:
    first: Any = jvms
    settings = JobSettings(spark_master=master)
    return Resources(plan(), settings, Redaction(), QueryStats(), first, lambda: None)


def test_local_master_has_slots_for_tasks_lookups_and_some_added_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jvms = Jvms(monkeypatch)
    acquired = resources(jvms, "local[*]")
    slots = 6 + LOOKUP_SLOTS + SPARE_SLOTS

    acquired.provide_slots(6)
    acquired.session()
    acquired.provide_slots(6 + SPARE_SLOTS)
    assert (f"local[{slots}]", 0) == (jvms.masters[-1], jvms.closed)

    acquired.provide_slots(7 + SPARE_SLOTS)
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
