"""Each batch is delivered once and in order, whatever fails and whichever zombie writes."""

import inspect
import random
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job.delivery import commit_protocol
from job.delivery.commit_protocol import (
    Batch,
    DisagreementError,
    Marker,
    Result,
    Step,
    TakenOverError,
    UnknownOutcomeError,
    deliver_once,
    is_delivered,
    run,
)
from tests.unit.delivery.schedules import Protocol, Schedule, ViolationError, World

SCHEDULES = 1_500
# Each planted bug below is seen within the first few hundred.
SCHEDULES_FOR_A_BUG = 5_000


def batch_(batch_id: int, fingerprint: str, since: int) -> Batch:
    return Batch(batch_id, fingerprint, since, "q")


def marker_(batch_id: int, fingerprint: str, query_id: str = "q") -> Marker:
    return Marker(batch_id, fingerprint, query_id)


@settings(max_examples=SCHEDULES)
@given(tape=st.binary(max_size=160), one_commit_partition=st.booleans())
def test_each_batch_is_written_once_under_every_schedule(
    tape: bytes, one_commit_partition: bool
) -> None:
    World(Schedule(tape), one_commit_partition=one_commit_partition).run()


def test_random_schedules_that_shrink_from_nothing_hold_too() -> None:
    for number in range(SCHEDULES):
        World(random_schedule(number), one_commit_partition=number % 2 == 0).run()


def test_undisturbed_run_takes_the_steps_in_this_order() -> None:
    steps: list[Step] = []

    def perform(step: Step) -> Marker | None:
        steps.append(step)
        return marker_(6, "f6") if step in {Step.PEEK_MARKER, Step.READ_MARKER} else None

    assert Result.COMMITTED is run(deliver_once(batch_(7, "f7", since=0)), perform)
    assert [
        Step.PEEK_MARKER,
        Step.INIT,
        Step.READ_MARKER,
        Step.BEGIN,
        Step.WRITE_ROWS,
        Step.WRITE_MARKER,
        Step.COMMIT,
    ] == steps


def test_lost_answer_to_a_commit_that_succeeded_is_settled_by_the_marker() -> None:
    markers = iter([None, None, marker_(0, "f0")])

    def perform(step: Step) -> Marker | None:
        if step is Step.COMMIT:
            raise UnknownOutcomeError("no answer")
        return next(markers) if step in {Step.PEEK_MARKER, Step.READ_MARKER} else None

    assert Result.SETTLED is run(deliver_once(batch_(0, "f0", since=0)), perform)


@pytest.mark.parametrize(
    ("batch", "marker", "delivered"),
    [
        (batch_(0, "f0", since=0), None, False),
        (batch_(0, "f0", since=0), marker_(0, "f0"), True),
        (batch_(5, "f5", since=0), marker_(4, "f4"), False),
        (batch_(5, "f5", since=0), marker_(5, "f5"), True),
        # Delivered at least once until batch 4, whatever an earlier time has left behind.
        (batch_(5, "f5", since=5), None, False),
        (batch_(5, "f5", since=5), marker_(2, "f2"), False),
        (batch_(5, "f5", since=5), marker_(5, "f5"), True),
    ],
)
def test_marker_shows_whether_the_batch_is_delivered(
    batch: Batch, marker: Marker | None, delivered: bool
) -> None:
    assert delivered is is_delivered(batch, marker)


@pytest.mark.parametrize(
    ("batch", "marker", "text"),
    [
        (batch_(5, "f5", since=0), None, "its marker is missing (the commit topic has no marker)"),
        (batch_(5, "f5", since=0), marker_(3, "f3"), "(the commit topic ends with batch 3)"),
        (batch_(5, "f5", since=0), marker_(6, "f6"), "but batch 6 was already delivered"),
        (batch_(5, "f5", since=5), marker_(6, "f6"), "but batch 6 was already delivered"),
        (batch_(5, "f5", since=0), marker_(5, "other"), "from other input offsets"),
        (batch_(0, "f0", since=0), marker_(0, "other"), "from other input offsets"),
    ],
)
def test_marker_that_contradicts_the_checkpoint_is_refused_with_the_remedy(
    batch: Batch, marker: Marker | None, text: str
) -> None:
    with pytest.raises(DisagreementError) as refusal:
        is_delivered(batch, marker)
    assert text in str(refusal.value)
    is_older_copy = "the commit topic" not in text
    remedy = "--results-again`" if is_older_copy else "set another folder in `checkpoint`"
    assert remedy in str(refusal.value)


@pytest.mark.parametrize("batch_id", [commit_protocol.NO_BATCH, 4, 5, 6])
def test_marker_of_another_query_is_refused_whatever_its_batch(batch_id: int) -> None:
    foreign = marker_(batch_id, "f5", "other")
    with pytest.raises(
        TakenOverError, match="query other has written the newest marker, and this is query q"
    ):
        is_delivered(batch_(5, "f5", since=0), foreign)

    steps = deliver_once(batch_(5, "f5", since=0))
    assert Step.PEEK_MARKER is next(steps)
    with pytest.raises(TakenOverError):  # before it has fenced the other query
        steps.send(foreign)


def test_marker_of_another_query_would_be_taken_without_the_check() -> None:
    loaded = mutant_module("    if marker.query_id != query_id:\n", "    if False:\n")
    assert not loaded.is_delivered(batch_(5, "f5", since=0), marker_(4, "f4", "other"))


# What is planted, where it stands in commit_protocol.py, and what it stands for.
READ = """    yield Step.INIT
    if is_delivered(batch, (yield Step.READ_MARKER)):"""
WRITE = """        yield Step.WRITE_MARKER
        yield Step.COMMIT
"""
UNKNOWN = """        yield Step.INIT
        if is_delivered(batch, (yield Step.READ_MARKER)):
            return Result.SETTLED
        raise
"""
BUGS = {
    "marker in a separate transaction, after the rows": (
        WRITE,
        "        yield Step.COMMIT\n        yield Step.BEGIN\n" + WRITE,
    ),
    "marker in a separate transaction, before the rows": (
        "        yield Step.WRITE_ROWS\n" + WRITE,
        WRITE + "        yield Step.WRITE_ROWS\n        yield Step.COMMIT\n",
    ),
    "marker read before the others are fenced": (
        READ,
        """    marker = yield Step.READ_MARKER
    yield Step.INIT
    if is_delivered(batch, marker):""",
    ),
    "marker read only as far as transactions are decided": (
        READ,
        READ.replace("READ_MARKER", "PEEK_MARKER"),
    ),
    "the peeked marker checked for gaps": (
        "seen is not None and is_not_before(batch, seen) and is_delivered(batch, seen)",
        "is_delivered(batch, seen)",
    ),
    "no fencing but for the first batch": (
        READ,
        READ.replace("    yield Step.INIT", "    if batch.batch_id == 0:\n        yield Step.INIT"),
    ),
    "marker not read": (READ, READ.replace("is_delivered(batch, (yield Step.READ_MARKER))", "0")),
    "lost answer taken for success": (UNKNOWN, "        return Result.SETTLED\n"),
    "abort taken for success": (
        "        yield Step.ABORT\n        raise\n    except",
        "        yield Step.ABORT\n        return Result.COMMITTED\n    except",
    ),
    "marker of the batch before taken for this one's": (
        "newest == batch.batch_id:\n",
        "newest >= batch.batch_id - 1:\n        return True\n    if False:\n",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_seen(bug: str) -> None:
    assert sees(mutant(*BUGS[bug])), f"{SCHEDULES_FOR_A_BUG} schedules hold in spite of: {bug}"


def test_batches_without_rows_need_their_markers() -> None:
    assert sees(deliver_once, marks_empty_batches=False)


@pytest.mark.parametrize(
    ("old", "new", "batch", "marker"),
    [
        ("marker.fingerprint != batch.fingerprint", "False", batch_(5, "f5", 0), marker_(5, "x")),
        ("newest != batch.batch_id - 1", "False", batch_(5, "f5", 0), marker_(3, "f3")),
        ("newest != batch.batch_id - 1", "newest >= 0", batch_(5, "f5", 0), None),
        ("newest > batch.batch_id", "False", batch_(5, "f5", 5), marker_(6, "f6")),
    ],
    ids=["fingerprint ignored", "gap not refused", "no marker not refused", "older copy"],
)
def test_refusal_that_is_left_out_is_seen(
    old: str, new: str, batch: Batch, marker: Marker | None
) -> None:
    """No schedule leads here: a user has changed the checkpoint or the commit topic."""
    source = inspect.getsource(commit_protocol)
    assert source.count(old)
    loaded = loaded_module(source.replace(old, new))
    with pytest.raises(DisagreementError):
        is_delivered(batch, marker)
    loaded.is_delivered(batch, marker)


def mutant(old: str, new: str) -> Protocol:
    """The protocol as it would be with `new` in the place of `old`."""
    protocol: Protocol = mutant_module(old, new).deliver_once
    return protocol


def mutant_module(old: str, new: str) -> types.ModuleType:
    source = inspect.getsource(commit_protocol)
    assert 1 == source.count(old), "the code no longer holds the place of the bug: plant it again"
    return loaded_module(source.replace(old, new))


def loaded_module(source: str) -> types.ModuleType:
    module = types.ModuleType("mutant")
    # The model raises and the mutant must catch the same exceptions.
    names = {name: value for name, value in vars(commit_protocol).items() if name[0] != "_"}
    exec(compile(source, "mutant", "exec"), module.__dict__)  # noqa: S102  # our own source
    for name, value in names.items():
        if isinstance(value, type):
            setattr(module, name, value)
    return module


def sees(protocol: Protocol, *, marks_empty_batches: bool = True) -> bool:
    return any(
        violated(number, protocol, marks_empty_batches=marks_empty_batches)
        for number in range(SCHEDULES_FOR_A_BUG)
    )


def violated(number: int, protocol: Protocol, *, marks_empty_batches: bool) -> bool:
    world = World(
        random_schedule(number),
        protocol,
        one_commit_partition=number % 2 == 0,
        marks_empty_batches=marks_empty_batches,
    )
    try:
        world.run()
    except ViolationError:
        return True
    return False


def random_schedule(seed: int) -> Schedule:
    chance = random.Random(seed)
    return Schedule(chance.randbytes(chance.randrange(200)))
