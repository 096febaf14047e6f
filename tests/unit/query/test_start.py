"""The phase of the next run of engine real_time."""

from types import SimpleNamespace
from typing import Any

import pytest

from job.plan import tuning
from job.protocol.status import Phase
from job.query.start import QueryStarter
from job.query.stats import QueryStats
from tests.unit.specs import plan


def run(conf: dict[str, str], *, is_committed: bool = True) -> Any:
    checkpoint = SimpleNamespace(is_committed=is_committed, move_uncommitted_state=lambda: None)
    spark = SimpleNamespace(conf=SimpleNamespace(set=conf.__setitem__))
    return SimpleNamespace(plan=plan(), spark=spark, checkpoint=checkpoint)


@pytest.fixture
def starter() -> QueryStarter:
    """The last run has ended because intervals are better."""
    unused: Any = None
    made = QueryStarter(QueryStats(), unused, new_query=False)
    made._next_phase = Phase.REAL_TIME
    return made


def test_only_a_catch_up_writes_whole_state_files(starter: QueryStarter) -> None:
    conf: dict[str, str] = {}
    assert Phase.REAL_TIME is starter._begin_phase(run(conf))
    assert {tuning.CHANGELOG: "true"} == conf

    assert Phase.CATCH_UP is starter._begin_phase(run(conf))
    assert {tuning.CHANGELOG: "false"} == conf


def test_query_that_was_stopped_begins_with_catch_up(starter: QueryStarter) -> None:
    """The new query after a reset has not claimed its name yet, and may have a backlog."""
    starter.forget_phase()
    assert Phase.CATCH_UP is starter._begin_phase(run({}))


def test_batch_that_was_not_committed_is_repeated_in_a_catch_up(starter: QueryStarter) -> None:
    assert Phase.CATCH_UP is starter._begin_phase(run({}, is_committed=False))
