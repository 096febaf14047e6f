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

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.masters: list[str] = []
        self.closed = 0
        monkeypatch.setattr(runtime, "Jvm", lambda *_: self)
        for name in ("trim_hadoop_conf", "listen"):
            monkeypatch.setattr(runtime, name, lambda *_: None)

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
