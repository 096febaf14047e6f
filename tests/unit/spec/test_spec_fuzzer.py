"""Mutations of valid specs never crash the planner and never make it hang."""

import pytest
import yaml

from job.plan.planner import join_plan
from job.spec.spec import spec_from_document
from job.spec.variables import filled
from tests.sql_worker import SQL
from tests.unit.spec.spec_fuzzer import ENVIRONMENT, crash_of
from tests.unit.spec.spec_mutator import mutated_specs, valid_documents

SEED = 20261123
SPECS = 2_000


def test_unmutated_specs_are_valid() -> None:
    for document in valid_documents():
        join_plan(spec_from_document(filled(document, ENVIRONMENT)), SQL, state_partitions=2)


def test_mutated_spec_is_planned_or_refused() -> None:
    crashes = [crash for text in mutated_specs(SEED, SPECS) if (crash := crash_of(text))]

    assert [] == crashes[:3]


@pytest.mark.parametrize("defect", [IndexError("planted"), ValueError("planted")])
def test_crash_is_reported(defect: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise defect

    monkeypatch.setattr("tests.unit.spec.spec_fuzzer.join_plan", broken)
    crash = crash_of(yaml.safe_dump(valid_documents()[0]))

    assert crash is not None
    assert "planted" in crash.trace


def test_hang_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def hung(*_: object, **__: object) -> None:
        while True:
            pass

    monkeypatch.setattr("tests.unit.spec.spec_fuzzer.SECONDS_MAX", 0.05)
    monkeypatch.setattr("tests.unit.spec.spec_fuzzer.join_plan", hung)
    crash = crash_of(yaml.safe_dump(valid_documents()[0]))

    assert crash is not None
    assert "TooSlow" in crash.trace
