"""The phase of the next run of engine real_time."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from job.event_time.partitions import Partitions, RecordedEventTimes
from job.plan import tuning
from job.protocol.status import Phase
from job.query.driver import Run, State
from job.query.pacing import SHORT_INTERVALS
from job.query.runtime import QueryRun
from job.query.start import QueryStarter
from job.query.stats import QueryStats
from tests.unit.query.driven import both
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


def test_first_intervals_of_each_session_are_short(starter: QueryStarter) -> None:
    run_ = SimpleNamespace(spark=object(), plan=plan(engine="real_time"))
    partitions = Partitions.restored(RecordedEventTimes(), both(1_000))
    state = State(Run({}), partitions, 0.0)

    first = starter._in_intervals(cast("QueryRun", run_), state)
    assert SHORT_INTERVALS == first.pacing.short_intervals
    again = starter._in_intervals(cast("QueryRun", run_), state)
    assert 0 == again.pacing.short_intervals


def test_query_that_was_stopped_begins_with_catch_up(starter: QueryStarter) -> None:
    """The new query after a reset has not claimed its name yet, and may have a backlog."""
    starter.forget_phase()
    assert Phase.CATCH_UP is starter._begin_phase(run({}))


def test_batch_that_was_not_committed_is_repeated_in_a_catch_up(starter: QueryStarter) -> None:
    assert Phase.CATCH_UP is starter._begin_phase(run({}, is_committed=False))
