"""Bugs that are planted in the protocol of intervals and in its driver, and the search for
schedules that show them."""

import inspect
import random
import sys
import types
from collections.abc import Iterator
from types import ModuleType

from job.query import driver
from tests.unit.delivery import interval_protocol
from tests.unit.delivery.interval_driver import LATE_BY_THE_BEGIN
from tests.unit.delivery.interval_executors import (
    LATE_ROW_JOINED,
    MATCH_IN_THE_ID,
    UNMATCHED_ROW_JOINED,
    UNMATCHED_ROW_KEPT,
)
from tests.unit.delivery.interval_matches import MATCH_TYPES
from tests.unit.delivery.interval_world import World
from tests.unit.delivery.schedules import Schedule, ViolationError, random_schedule

TAPE_MAX = 1_800
# What is compared by type must be the same in each mutant, as the errors.
_SHARED = {
    *("OutputRow", "Part", "Fence", "SlotContent", "Step"),
    *("BeginRows", "WriteRows", "WritePart", "WriteMarker", "WriteFence"),
}

OPENING = """    yield Step.INIT
    return opened(opening, (yield Step.READ_SLOT))
"""
WRITE = """            yield WriteRows(rows)
            ids = frozenset(map(_recorded, rows))
            yield WritePart("""
PART = "Part(batch.query_id, batch.batch_id, number, frozenset(map(_recorded, rows)))"
TAKE = """    is_last = False
    while not is_last:
"""
ROWS_OF_A_MICRO_BATCH = """        yield WriteRows(_new(rows, known))
"""
MARKER_OF_A_MICRO_BATCH = """    yield WriteMarker(batch.marker)
"""
COMMIT_OF_A_MICRO_BATCH = """    was_sent_twice: bool = yield Step.COMMIT
    return was_sent_twice
"""
MARKER = """        if is_last:
            yield WriteMarker(batch.marker)
"""
SKIPPED = """        yield Step.DROP_ROWS
        return Result.SKIPPED
"""

FENCE = """    yield Step.BEGIN
    yield WriteFence(fence)
    yield Step.COMMIT
"""

# The text that stands in interval_protocol.py, its replacement, and the first schedule that shows
# the bug by lost or repeated results, or by a refusal of the next batch.
PROTOCOL_BUGS: dict[str, tuple[str, str, int]] = {
    "rows that are out are written again": ("if _recorded(row) not in known.ids)", ")", 0),
    "marker of an interval means that the repetition has nothing to write": (
        "if marker.fingerprint == INTERVAL:\n            return False",
        "if marker.fingerprint == INTERVAL:\n            return True",
        130,
    ),
    "join does not know what the interval has delivered": (
        "yield BeginRows(known.ids)",
        "yield BeginRows(frozenset())",
        14,
    ),
    "join of a delivered batch does not know what the interval has delivered": (
        "    yield BeginRows(known.ids)\n    if known.is_delivered:\n",
        "    if not known.is_delivered:\n        yield BeginRows(known.ids)\n    else:\n",
        60,
    ),
    "marker of a micro-batch is ignored": (SKIPPED, "        pass\n", 4),
    "slot is read before the others are fenced": (
        OPENING,
        """    found = yield Step.READ_SLOT
    yield Step.INIT
    return opened(opening, found)
""",
        7,
    ),
    "ids in a separate transaction, after the rows": (
        WRITE,
        WRITE.replace(
            "            yield WritePart(",
            """            yield Step.COMMIT
            yield Step.BEGIN
            yield WritePart(""",
        ),
        6,
    ),
    "ids in a separate transaction, before the rows": (
        WRITE,
        f"""            yield WritePart({PART})
            yield Step.COMMIT
            yield Step.BEGIN
{WRITE}""",
        0,
    ),
    "marker of a micro-batch in a separate transaction, before the rows": (
        TAKE,
        f"""    yield WriteMarker(batch.marker)
    yield Step.COMMIT
    yield Step.BEGIN
{TAKE}""",
        0,
    ),
    "marker of a micro-batch in a separate transaction, after the rows": (
        ROWS_OF_A_MICRO_BATCH + MARKER_OF_A_MICRO_BATCH,
        f"""{ROWS_OF_A_MICRO_BATCH}    if _new(rows, known):
        yield Step.COMMIT
        yield Step.BEGIN
{MARKER_OF_A_MICRO_BATCH}""",
        2,
    ),
    "no marker for a micro-batch without rows": (
        ROWS_OF_A_MICRO_BATCH,
        f"{ROWS_OF_A_MICRO_BATCH}    if not _new(rows, known):\n        return False\n",
        0,
    ),
    "marker of the previous batch is taken for that of the batch": (
        "    if marker is not None and newest == batch.batch_id:\n",
        """    if marker is not None and newest >= batch.batch_id - 1:
        return True
    if False:
""",
        0,
    ),
    "missing marker is refused before the others are fenced": (
        "if marker is None or marker.batch_id < opening.batch.batch_id:",
        "if marker is None:",
        0,
    ),
    "others are fenced before the first batch only": (
        OPENING,
        OPENING.replace(
            "    yield Step.INIT",
            "    if opening.batch.batch_id == 0:\n        yield Step.INIT",
        ),
        0,
    ),
    "failed commit is taken for success": (
        COMMIT_OF_A_MICRO_BATCH,
        """    try:
        was_sent_twice: bool = yield Step.COMMIT
    except Exception:
        return False
    return was_sent_twice
""",
        0,
    ),
    "aborted transaction is taken for success": (
        "        yield Step.ABORT\n        raise\n",
        "        yield Step.ABORT\n        was_sent_twice = False\n",
        11,
    ),
    "only the newest part counts": (
        "[part for part in own if part.batch_id == opening.recovered]",
        "[part for part in own if part.batch_id == opening.recovered][-1:]",
        4,
    ),
    "parts count for the first batch of a repetition only": (
        "return self.batch.batch_id if self.repeats is None else self.repeats",
        "return self.batch.batch_id",
        4,
    ),
    "ids are forgotten after the first batch of a run": (
        "known = Opened(ids=slot.ids)",
        "known = Opened()",
        0,
    ),
    "no marker for an interval that ends without rows": (
        MARKER,
        MARKER.replace("is_last:", "is_last and rows:"),
        8,
    ),
    "no marker for an interval": (MARKER, "", 6),
    "producer is kept although another executor has written": (
        "self.ended == opening.batch.batch_id - 1",
        "self.ended is not None",
        48,
    ),
    "producer is kept although another executor has begun the batch": (
        " and opening.is_first_attempt",
        "",
        318,
    ),
    "transaction follows a commit that was sent twice": (
        "        if was_sent_twice:\n            raise UnavailableError",
        "        if False:\n            raise UnavailableError",
        289,
    ),
    "batch follows a commit that was sent twice": (
        "None if was_sent_twice else batch.batch_id",
        "batch.batch_id",
        368,
    ),
}

# Shown if another producer hides records of the commit topic.
READ_TO_THE_LAST_STABLE_OFFSET = (OPENING, OPENING.replace("READ_SLOT", "PEEK_SLOT"))

# Shown by joins with one result for each left row (interval_matches.py): the text that stands in
# interval_protocol.py and its replacement; None: the bug is named in interval_executors.py.
MATCH_BUGS: dict[str, tuple[str, str] | None] = {
    "rows are skipped by their content": (
        "    return row.id\n",
        "    return row.id + row.content\n",
    ),
    MATCH_IN_THE_ID: None,
    UNMATCHED_ROW_JOINED: None,
    UNMATCHED_ROW_KEPT: None,
}

# As named in interval_driver.py, and a schedule that shows the bug.
LOOP_BUGS: dict[str, int] = {
    LATE_BY_THE_BEGIN: 1_528,
    LATE_ROW_JOINED: 20,
    UNMATCHED_ROW_JOINED: 582,
    UNMATCHED_ROW_KEPT: 14,
    "ends recorded before fencing": 2_873,
    "record removed before the commit": 291,
}

# The text that stands in job/query/driver.py, its replacement, and a schedule that shows the bug.
DRIVER_BUGS: dict[str, tuple[str, str, int]] = {
    "watermark advances in a repetition": (
        "if state.is_repeating(event.read.next_offsets):",
        "if False:",
        3,
    ),
    "idle side raises the watermark in a repetition": (
        "return self.is_replaying or self.interrupted is not None",
        "return self.is_replaying",
        94,
    ),
    "run goes on after the repetition": (
        "[] if state.interrupted is None else [EndRun(Phase.CATCH_UP)]",
        "[]",
        6_295,
    ),
    "interval is not recorded": ("[*watermarks, RecordInterval(recorded)]", "[*watermarks]", 0),
}

# Shown by a task that opens its slot late. The driver bug leaves interval_protocol.py as it is.
FENCE_BUGS: dict[str, tuple[str, str] | None] = {
    "smaller fence number is accepted": ("if newest > opening.fence:", "if False:"),
    "fence number is compared only before the others are fenced": (
        "    _check_run(opening, content)\n    own =",
        "    own =",
    ),
    "fence without a record": (FENCE, ""),
    "fence has the number of the one before": None,
}


def shown(bug: str, numbers: Iterator[int]) -> int | None:
    """The first of these schedules that shows the bug. None: all of them hold."""
    protocol, rules, loop_bug = interval_protocol, driver, bug if bug in LOOP_BUGS else None
    if bug in PROTOCOL_BUGS:
        protocol = mutant(*PROTOCOL_BUGS[bug][:2])
    if bug in DRIVER_BUGS:
        rules = mutant(*DRIVER_BUGS[bug][:2], driver)
    return next((n for n in numbers if violation(n, protocol, rules, loop_bug) is not None), None)


def violation(
    number: int,
    protocol: ModuleType = interval_protocol,
    rules: ModuleType = driver,
    driver_bug: str | None = None,
) -> str | None:
    """What is wrong after the schedule of this number. None: all is right."""
    try:
        world(number, protocol, rules, driver_bug).run()
    except ViolationError as error:
        return str(error)
    return None


def violation_of_a_late_task(number: int, bug: str | None = None) -> str | None:
    """As `violation`."""
    planted = None if bug is None else FENCE_BUGS[bug]
    protocol = interval_protocol if planted is None else mutant(*planted)
    model = World(Schedule(random.Random(number).randbytes(TAPE_MAX)), protocol, driver_bug=bug)
    try:
        model.run_with_a_late_task()
    except ViolationError as error:
        return str(error)
    return None


def violation_of_matches(number: int, bug: str | None = None) -> str | None:
    """As `violation`, for a join with one result for each left row."""
    planted = None if bug is None else MATCH_BUGS[bug]
    model = World(
        schedule(number),
        interval_protocol if planted is None else mutant(*planted),
        join_type=MATCH_TYPES[number % len(MATCH_TYPES)],
        driver_bug=bug,
        has_zombies=number % 3 > 0,
    )
    try:
        model.run()
    except ViolationError as error:
        return str(error)
    return None


def violation_behind_hidden_records(
    number: int, protocol: ModuleType = interval_protocol
) -> str | None:
    """As `violation`."""
    try:
        World(schedule(number), protocol, hides_records=True).run()
    except ViolationError as error:
        return str(error)
    return None


def world(
    number: int,
    protocol: ModuleType = interval_protocol,
    rules: ModuleType = driver,
    driver_bug: str | None = None,
) -> World:
    return World(
        schedule(number),
        protocol,
        rules=rules,
        join_type="left_semi" if number % 2 else "full_outer",
        driver_bug=driver_bug,
        has_zombies=number % 3 > 0,
    )


def schedule(number: int) -> Schedule:
    return random_schedule(number, TAPE_MAX)


def mutant(old: str, new: str, of: ModuleType = interval_protocol) -> ModuleType:
    source = inspect.getsource(of)
    assert 1 == source.count(old), "the code no longer holds the place of the bug: plant it again"
    module = types.ModuleType("interval_mutant")
    sys.modules[module.__name__] = module  # dataclasses look for their module
    exec(compile(source.replace(old, new), "mutant", "exec"), module.__dict__)  # noqa: S102  # our own source
    for name, value in vars(of).items():
        is_error = isinstance(value, type) and issubclass(value, Exception)
        if is_error or name in _SHARED:
            setattr(module, name, value)
    return module
