"""Each row is out once, however often a batch or an interval is interrupted, whatever fails."""

import random

import pytest

from job.delivery.commit_protocol import (
    NO_BATCH,
    Marker,
    ProducerFencedError,
)
from job.delivery.delivered import Fence
from tests.unit.delivery.interval_bugs import (
    DRIVER_BUGS,
    FENCE_BUGS,
    LOOP_BUGS,
    MATCH_BUGS,
    PROTOCOL_BUGS,
    READ_TO_THE_LAST_STABLE_OFFSET,
    mutant,
    schedule,
    shown,
    violation,
    violation_behind_hidden_records,
    violation_of_a_late_task,
    violation_of_matches,
    world,
)
from tests.unit.delivery.interval_driver import SLOTS
from tests.unit.delivery.interval_protocol import (
    INTERVAL,
    Batch,
    BeginRows,
    DisagreementError,
    Opened,
    Opening,
    Part,
    Slot,
    SlotContent,
    Step,
    deliver,
    opened,
)
from tests.unit.delivery.interval_world import World
from tests.unit.delivery.schedules import ViolationError

# `python -m tests.unit.delivery.explore_intervals` explores 100,000.
SCHEDULES = 600
# Searched from the schedule that showed the bug when it was planted.
SCHEDULES_FOR_A_BUG = 3_000
LATE_TASKS = 200


def test_each_row_is_out_once_under_every_schedule() -> None:
    wrong = {number: text for number in range(SCHEDULES) if (text := violation(number))}
    assert {} == wrong


def test_no_row_is_lost_and_no_start_refused_if_the_delivery_changes_both_ways() -> None:
    for number in range(SCHEDULES // 4):
        World(schedule(number), has_zombies=False, changes_delivery=True).run()


def test_each_row_is_out_once_if_transactions_of_others_hide_records_of_the_commit_topic() -> None:
    numbers = range(SCHEDULES // 4)
    wrong = {n: text for n in numbers if (text := violation_behind_hidden_records(n))}
    assert {} == wrong
    bug = mutant(*READ_TO_THE_LAST_STABLE_OFFSET)
    assert any(violation_behind_hidden_records(number, bug) for number in numbers)


@pytest.mark.parametrize("bug", PROTOCOL_BUGS)
def test_bug_in_the_protocol_is_seen(bug: str) -> None:
    first = PROTOCOL_BUGS[bug][2]
    assert shown(bug, iter(range(first, first + SCHEDULES_FOR_A_BUG))) is not None


@pytest.mark.parametrize("bug", [*LOOP_BUGS, *DRIVER_BUGS])
def test_bug_in_the_driver_is_seen(bug: str) -> None:
    first = LOOP_BUGS[bug] if bug in LOOP_BUGS else DRIVER_BUGS[bug][2]
    assert shown(bug, iter(range(first, first + SCHEDULES_FOR_A_BUG))) is not None


def test_left_row_has_one_outcome_whatever_match_its_repetition_finds() -> None:
    wrong = {n: text for n in range(SCHEDULES // 2) if (text := violation_of_matches(n))}
    assert {} == wrong


@pytest.mark.parametrize("bug", MATCH_BUGS)
def test_bug_in_a_join_with_one_result_for_each_left_row_is_seen(bug: str) -> None:
    assert any(violation_of_matches(number, bug) for number in range(SCHEDULES_FOR_A_BUG))


def test_task_that_opens_its_slot_after_the_fence_writes_nothing() -> None:
    wrong = {n: text for n in range(LATE_TASKS) if (text := violation_of_a_late_task(n))}
    assert {} == wrong


@pytest.mark.parametrize("bug", FENCE_BUGS)
def test_bug_in_the_fence_is_seen(bug: str) -> None:
    assert any(violation_of_a_late_task(number, bug) for number in range(LATE_TASKS))


def test_older_copy_of_the_checkpoint_is_refused_or_repeats_nothing() -> None:
    refused = 0
    for number in range(SCHEDULES // 4):
        model = world(number)
        copies = []
        while not model.schedule.is_over:
            copies.append(model.checkpoint.copy())
            model.turn()
        model.checkpoint = random.Random(number).choice(copies or [model.checkpoint])
        text = failure_of(model)
        if text is not None:
            assert "is an older copy" in text or "from other input offsets" in text
            refused += 1
            assert 1 == max(model.results().values(), default=1)
    assert refused > SCHEDULES // 20


def failure_of(model: World) -> str | None:
    try:
        model.finish()
        model.check()
    except ViolationError as error:
        model.broker.settle()
        return str(error)
    return None


def test_query_writes_nothing_after_another_one_has_taken_over_its_name() -> None:
    for number in range(SCHEDULES // 8):
        model = world(number)
        model.run_schedule()
        for slot in range(SLOTS):
            handle = model.broker.init(f"id-{slot}")
            claim = Marker(NO_BATCH, "", "other")
            model.broker.produce(handle, model.commits[slot], claim)
            model.broker.end(handle, "committed")
        model.broker.write_control_records()
        results = model.results()
        with pytest.raises(ViolationError, match="query other has written the newest marker"):
            model.finish()
        model.broker.settle()
        assert results == model.results()


def part(batch_id: int, number: int, *ids: str, query: str = "q") -> Part:
    return Part(query, batch_id, number, frozenset(ids))


def opening(
    batch_id: int, fingerprint: str = INTERVAL, repeats: int | None = None, *, fence: int = 0
) -> Opening:
    return Opening(Batch(batch_id, fingerprint, 0, "q"), repeats, fence)


BEFORE = Marker(6, INTERVAL, "q")


@pytest.mark.parametrize(
    ("opening_", "marker", "parts"),
    [
        (opening(7, "f"), BEFORE, (part(7, 0),)),  # no interval 7 is recorded
        (opening(7, "f"), Marker(7, INTERVAL, "q"), ()),
        (opening(7), BEFORE, (part(8, 0),)),
        (opening(7, "f", 7), BEFORE, (part(8, 0),)),
        (opening(8, "f", 7), Marker(7, "f7", "q"), (part(8, 0),)),
        (opening(7), Marker(8, "f", "q"), ()),
    ],
)
def test_interval_that_the_checkpoint_does_not_contain_is_refused(
    opening_: Opening, marker: Marker, parts: tuple[Part, ...]
) -> None:
    with pytest.raises(DisagreementError, match="the checkpoint is an older copy"):
        opened(opening_, SlotContent(marker, parts))


def test_interval_after_a_micro_batch_of_the_same_id_is_refused() -> None:
    with pytest.raises(DisagreementError, match="from other input offsets"):
        opened(opening(7), SlotContent(Marker(7, "f", "q")))


# That of the run with fence 2, and an earlier one that arrived later.
FENCED = SlotContent(BEFORE, fences=(Fence("q", 2), Fence("q", 1), Fence("other", 9)))


@pytest.mark.parametrize("fingerprint", [INTERVAL, "f"])
def test_run_that_began_before_a_fence_ends_before_it_fences_the_successor(
    fingerprint: str,
) -> None:
    running = deliver(opening(7, fingerprint, fence=1), Slot())
    assert Step.PEEK_SLOT is next(running)
    with pytest.raises(DisagreementError, match="this run began with fence 1"):
        running.send(FENCED)


@pytest.mark.parametrize(
    ("parts", "decision"),
    [
        ((part(7, 4, "a"), part(7, 5, "b")), Opened(False, frozenset("ab"), 6)),
        ((part(7, 4, "a", query="other"),), Opened()),
    ],
)
def test_repeated_interval_overwrites_no_part_and_reads_no_part_of_another_query(
    parts: tuple[Part, ...], decision: Opened
) -> None:
    assert decision == opened(opening(7), SlotContent(BEFORE, parts))


def test_failed_delivery_leaves_a_slot_that_is_opened_again() -> None:
    slot = Slot(ended=6)
    running = deliver(opening(7), slot)
    assert BeginRows(frozenset()) == next(running)
    assert Step.TAKE_ROWS is next(running)
    with pytest.raises(ProducerFencedError):
        running.throw(ProducerFencedError())
    assert Slot() == slot
