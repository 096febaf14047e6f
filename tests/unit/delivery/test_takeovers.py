"""One query at a time delivers under a name, whichever starts and whatever fails."""

from collections.abc import Callable
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job.delivery import commit_protocol
from job.delivery.commit_protocol import (
    NO_BATCH,
    DeliveredAfterCutError,
    Marker,
    Result,
    Step,
    run,
    take_over,
)
from tests.unit.delivery.interval_bugs import mutant
from tests.unit.delivery.schedules import Schedule, ViolationError, random_schedule
from tests.unit.delivery.takeovers import PARTITIONS, Query, World

SCHEDULES = 150
TAPE_MAX = 300
# Each planted bug below is seen within the first thousand.
SCHEDULES_FOR_A_BUG = 3_000

Case = Callable[[Schedule, ModuleType], None]


def replaced(schedule: Schedule, protocol: ModuleType = commit_protocol) -> None:
    """The user has agreed to the second query: it delivers all, and the first one stops."""
    first, second = Query("a"), Query("b", replaces=frozenset("a"))
    world = World(schedule, first, second, protocol)
    world.run()
    for partition in range(PARTITIONS):
        results = world.results(partition)
        begun = len(results) - len(second.rows(partition))
        if results != first.rows(partition)[: max(begun, 0)] + second.rows(partition):
            raise ViolationError(f"partition {partition}: {results}")


def rivals(schedule: Schedule, protocol: ModuleType = commit_protocol) -> None:
    """Nobody has agreed to a second query: one of the two delivers, and the other one nothing."""
    first, second = Query("a"), Query("b")
    world = World(schedule, first, second, protocol)
    world.start_together()
    world.run()
    found = [world.results(partition) for partition in range(PARTITIONS)]
    for query in (first, second):
        if found == [query.rows(partition) for partition in range(PARTITIONS)]:
            return
    raise ViolationError(f"{found}")


CASES: list[Case] = [replaced, rivals]


@pytest.mark.parametrize("case", CASES)
def test_one_query_at_a_time_delivers_whatever_the_schedule(case: Case) -> None:
    @settings(max_examples=SCHEDULES)
    @given(tape=st.binary(max_size=200))
    def holds(tape: bytes) -> None:
        case(Schedule(tape), commit_protocol)

    holds()
    for number in range(SCHEDULES):
        case(random_schedule(number, TAPE_MAX), commit_protocol)


CLAIM = """    yield Step.INIT
    if is_owned((yield Step.READ_MARKER)):
        return Result.SKIPPED
    try:
"""
BUGS: dict[str, tuple[Case, str, str]] = {
    "owner not checked when a claim is written": (
        rivals,
        "        check_owner(claim.query_id, marker)\n",
        "        return False\n",
    ),
    "owner read before the others are fenced": (
        rivals,
        CLAIM,
        """    is_owned((yield Step.READ_MARKER))
    yield Step.INIT
    try:
""",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_seen(bug: str) -> None:
    case, old, new = BUGS[bug]
    module = mutant(old, new, commit_protocol)
    assert any(violated(case, module, number) for number in range(SCHEDULES_FOR_A_BUG)), (
        f"{SCHEDULES_FOR_A_BUG} schedules hold in spite of: {bug}"
    )


def violated(case: Case, module: ModuleType, number: int) -> bool:
    try:
        case(random_schedule(number, TAPE_MAX), module)
    except ViolationError:
        return True
    return False


@pytest.mark.parametrize(
    ("last_batches", "is_refused"),
    [({}, False), ({"a": 8}, False), ({"a": 7}, True), ({"b": 7}, False)],
    ids=["any batch", "batch 8", "batch 7", "other query"],
)
@pytest.mark.parametrize("seen_first", [7, 8])
def test_name_is_not_taken_over_from_a_query_that_has_delivered_a_later_batch(
    last_batches: dict[str, int], is_refused: bool, seen_first: int
) -> None:
    """A change has read batch 7 as the last one. Batch 8 may be delivered until producers are
    fenced."""
    taken: list[Step] = []

    def perform(step: Step) -> Marker | None:
        taken.append(step)
        if step is Step.PEEK_MARKER:
            return Marker(seen_first, "", "a")
        if step is Step.READ_MARKER:
            return Marker(NO_BATCH, "", "b") if Step.COMMIT in taken else Marker(8, "", "a")
        return None

    taking = take_over(Marker(NO_BATCH, "", "b"), {"a"}, last_batches)
    if is_refused:
        with pytest.raises(DeliveredAfterCutError, match="has delivered batch 8"):
            run(taking, perform)
    else:
        assert Result.COMMITTED is run(taking, perform)
    assert is_refused == (Step.WRITE_MARKER not in taken)
