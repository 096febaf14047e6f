"""Changes of a query of the real-time engine, under a schedule: a change and its undo at any moment
of the life of the query, killed at any step, several in a row.

Follows change/hand_over.py and change/files.py. The replay of the new query is not modelled:
the query begins with the state of the old one at the cut. With a `change_bug` the change leaves out
one of its rules.
"""

from collections.abc import Iterator
from typing import Any

from job.delivery import delivered
from job.delivery.commit_protocol import NO_BATCH, Marker
from job.delivery.delivered import Fence
from tests.unit.delivery.interval_bugs import mutant, schedule
from tests.unit.delivery.interval_checkpoint import Checkpoint
from tests.unit.delivery.interval_driver import SLOTS, Driver
from tests.unit.delivery.interval_executors import slot_content
from tests.unit.delivery.interval_protocol import SlotContent
from tests.unit.delivery.interval_world import World
from tests.unit.delivery.schedules import ViolationError

CHANGES_MAX = 4

# The text in delivered.py, and its replacement.
INSIDE_THE_REPETITION = (
    "return repeats if repeats is not None and self.has_part_of(repeats) else None",
    "return None",
)
BEFORE_THE_STOP_ONLY = "checks only before the query stops what is delivered"
BEFORE_THE_FENCE = "reads what is delivered before it fences the query"
UNDO_IN_AN_INTERVAL = "undo although an interval of the new query has begun"
CHANGE_BUGS: dict[str, int] = {
    "cuts inside the repetition": 5,
    BEFORE_THE_STOP_ONLY: 12,
    BEFORE_THE_FENCE: 9,
    UNDO_IN_AN_INTERVAL: 2_140,
}
"""What a change leaves out, and a schedule that shows it. The first one is in delivered.py."""
_BUGS_OF_THE_WORLD = {BEFORE_THE_STOP_ONLY, BEFORE_THE_FENCE, UNDO_IN_AN_INTERVAL}


class ChangingWorld(World):
    """The query that runs is the newest one that a change has handed the name over to."""

    def __init__(self, *arguments: Any, change_bug: str | None = None, **more: Any) -> None:
        self._bug = change_bug
        is_planted = change_bug is not None and change_bug not in _BUGS_OF_THE_WORLD
        self._rules = mutant(*INSIDE_THE_REPETITION, delivered) if is_planted else delivered
        self._step_of_change: Iterator[None] | None = None
        self._replaced: list[tuple[str, Checkpoint, int]] = []
        """Id and checkpoint of each query that a change has replaced, and the last batch before the
        new query."""
        self._ids = 0
        self.changes = self.refusals = self.undone = 0
        super().__init__(*arguments, **more)

    def turn(self) -> None:
        choice = self.schedule.choose()
        if self._step_of_change is not None:
            if choice < 12:
                self._end_change()  # killed
            elif choice < 160:
                self._go_on()
            else:
                super().turn()
        elif choice < 8:
            self._begin(self._change())
        elif choice < 20 and self._replaced:
            self._undo()
        else:
            super().turn()

    def finish(self) -> None:
        self._step_of_change = None
        super().finish()

    def _step(self, driver: Driver) -> None:
        """The driver of a query that is stopped takes no steps."""
        if self._step_of_change is None or driver is not self.driver:
            super()._step(driver)

    def _new_driver(self) -> Driver:
        if self._step_of_change is None:
            self._claim_name()
        return super()._new_driver()

    def _claim_name(self) -> None:
        """At a start, as ownership.py, if a change was killed among the slots or undone."""
        for slot, log in enumerate(self.commits):
            marker = slot_content(log.committed()).marker
            if marker is not None and marker.query_id != self.query_id:
                self._write(slot, Marker(NO_BATCH, "", self.query_id))

    def _write(self, slot: int, record: object) -> None:
        handle = self.broker.init(f"id-{slot}")
        self.broker.produce(handle, self.commits[slot], record)
        self.broker.end(handle, "committed")
        self.broker.write_control_records()

    # The change

    def _begin(self, steps: Iterator[None]) -> None:
        """The query has stopped between two batches, or its job was killed: the change finds it at
        any step."""
        if self.changes + self.refusals >= CHANGES_MAX:
            return
        self._has_rivals = True
        if self.schedule.choose() % 2 and len(self._zombies) < self._max_zombies:
            self._zombies.append(self.driver)
        self._step_of_change = steps
        self.driver = self._new_driver()

    def _end_change(self) -> None:
        self._step_of_change = None
        self.driver = self._new_driver()

    def _go_on(self) -> None:
        assert self._step_of_change is not None
        if next(self._step_of_change, "over") == "over":
            self._end_change()

    def _change(self) -> Iterator[None]:
        old = self.checkpoint
        if not old.committed:
            return
        last = old.last
        seen_before = self._unfinished(self._committed(), last)
        yield
        if self._bug != BEFORE_THE_FENCE:
            old.fence += 1
            for slot in range(SLOTS):
                yield
                self._write(slot, Fence(self.query_id, old.fence))
        yield
        unfinished = self._unfinished(self._committed(), last)
        if self._bug == BEFORE_THE_FENCE:
            yield
        if self._bug == BEFORE_THE_STOP_ONLY:
            unfinished = seen_before
        if unfinished is not None:
            self.refusals += 1
            return
        old.since = last + 1  # `allow_return`
        yield
        self._ids += 1
        new_id = f"new-{self._ids}"
        for slot, content in enumerate(self._committed()):
            yield
            if content.marker is None or content.marker.query_id != new_id:
                self._write(slot, Marker(NO_BATCH, "", new_id))
        yield
        self._replaced.append((self.query_id, old, last))
        self.query_id, self.checkpoint = new_id, _continued(old)
        self.changes += 1

    def _committed(self) -> list[SlotContent]:
        """Of each slot. Nothing else is written to a slot once its producers are fenced."""
        return [slot_content(log.committed()) for log in self.commits]

    def _unfinished(self, contents: list[SlotContent], last: int) -> int | None:
        own = [
            part for content in contents for part in content.parts if part.query_id == self.query_id
        ]
        markers = [content.marker for content in contents if content.marker is not None]
        batches = [marker.batch_id for marker in markers if marker.query_id == self.query_id]
        interval = max((part.batch_id for part in own), default=NO_BATCH)
        found = self._rules.Delivered(max([interval, *batches]), interval)
        cut = self.checkpoint.cut
        repeats = None if cut is None else cut.batch_id
        unfinished: int | None = found.unfinished(last, repeats)
        return unfinished

    def _undo(self) -> None:
        """Refused if the new query may have delivered anything, as `has_delivered`. A kill leaves
        either the new query or the old one: the undo writes one file."""
        if not self._replaced:
            return
        query_id, old, last = self._replaced[-1]
        has_interval = self.checkpoint.recorded is not None
        if max(self.checkpoint.planned) > last or (
            has_interval and self._bug != UNDO_IN_AN_INTERVAL
        ):
            return
        self._has_rivals = True
        self._replaced.pop()
        self.query_id, self.checkpoint = query_id, old
        old.since = last + 1
        self.undone += 1
        self.driver = self._new_driver()


def _continued(old: Checkpoint) -> Checkpoint:
    """The checkpoint of the new query at the end of its replay. Its batches count on from those of
    the old query."""
    last = old.last
    return Checkpoint(
        planned={last: old.planned[last]},
        committed={last: old.committed[last]},
        states={(last, slot): old.states[last, slot].copy() for slot in range(SLOTS)},
        event_times=old.event_times,
        since=last + 1,
    )


def changing_world(number: int, change_bug: str | None = None) -> ChangingWorld:
    return ChangingWorld(
        schedule(number),
        join_type="left_semi" if number % 2 else "full_outer",
        has_zombies=number % 3 > 0,
        change_bug=change_bug,
    )


def violation_of_a_change(number: int, change_bug: str | None = None) -> str | None:
    """What is wrong after the schedule of this number. None: all is right."""
    try:
        changing_world(number, change_bug).run()
    except ViolationError as error:
        return str(error)
    return None
