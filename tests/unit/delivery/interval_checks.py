"""The check of a change while the query of the real-time engine runs, under a schedule.

A change that passes the check stops the query between two batches, and must then find that nothing
of an interrupted interval is left to repeat. Transactions of other joins hide records of the commit
topic at times. Follows change/old_query.py.
"""

from job.delivery import delivered
from job.delivery.commit_protocol import NO_BATCH, Marker
from job.delivery.delivered import Delivered, Fence
from job.protocol.status import Phase
from tests.unit.delivery.broker_model import Log
from tests.unit.delivery.interval_bugs import mutant, schedule
from tests.unit.delivery.interval_driver import Driver
from tests.unit.delivery.interval_protocol import Part
from tests.unit.delivery.interval_world import World
from tests.unit.delivery.schedules import QUERY, ViolationError

_STEPS_TO_THE_STOP = 400

BEFORE_THE_PLANNED_BATCH = "a batch that is planned when the check begins is not awaited"

# The text in delivered.py, its replacement, and a schedule that shows the bug.
CHECK_BUGS: dict[str, tuple[str, str, int]] = {
    "rows that a transaction may hide are not delivered": (
        "return False if self.fence >= fence else None",
        "return False",
        105,
    ),
    "an interval that runs is never an interrupted one": (
        "known = self.fenced_id if in_intervals else newest",
        "known = NO_BATCH if in_intervals else newest",
        244,
    ),
}


class CheckedWorld(World):
    def __init__(self, *arguments: object, check_bug: str | None = None, **more: object) -> None:
        self._bug = check_bug
        planted = None if check_bug is None else CHECK_BUGS.get(check_bug)
        self._rules = delivered if planted is None else mutant(*planted[:2], delivered)
        self._planned: tuple[Driver, int] | None = None
        """The run in which nothing must be repeated, and the batch that was planned then."""
        self.stops = self.waits = self.hidden = 0
        """Checks that have stopped the query; that wait for a repetition; that a transaction
        hides."""
        super().__init__(*arguments, **more)  # type: ignore[arg-type]

    def turn(self) -> None:
        if self.schedule.choose() < 24:
            self._check()
        else:
            super().turn()

    def _check(self) -> None:
        """The job makes the check only while the query runs."""
        if self.driver.phase is None or not self.checkpoint.committed:
            return
        if self._planned is None or self._planned[0] is not self.driver:
            must_repeat = self._must_repeat(self.driver)
            if must_repeat is not False:
                self.hidden += must_repeat is None
                self.waits += must_repeat is True
                return
            self._planned = self.driver, max(self.checkpoint.planned)
        if self._planned[1] <= self.checkpoint.last or self._bug == BEFORE_THE_PLANNED_BATCH:
            self._stop(self.driver)

    def _must_repeat(self, driver: Driver) -> bool | None:
        cut = self.checkpoint.cut
        if cut is None:
            return False
        found = self._delivered([log.committed() for log in self.commits])
        must_repeat: bool | None = found.must_repeat(
            *(cut.batch_id, self.checkpoint.fence), in_intervals=driver.phase is Phase.REAL_TIME
        )
        return must_repeat

    def _stop(self, driver: Driver) -> None:
        """A query that fails meanwhile is another case: the change is refused."""
        driver.stops = True
        for _ in range(_STEPS_TO_THE_STOP):
            if driver is not self.driver:
                return
            if driver.has_stopped:
                break
            self._step(driver)
        else:
            driver.stops = False
            return
        self.stops += 1
        self.broker.settle()
        found = self._delivered([_decided(log) for log in self.commits])
        cut = self.checkpoint.cut
        repeats = None if cut is None else cut.batch_id
        if (batch_id := found.unfinished(self.checkpoint.last, repeats)) is not None:
            raise ViolationError(f"the query has stopped before it has repeated {batch_id}")
        self._has_rivals = True
        self._planned = None
        self.driver = self._new_driver()

    def _delivered(self, slots: list[list[object]]) -> Delivered:
        """As `newest_delivered` in ownership.py."""
        found = [_delivered_in(slot) for slot in slots]
        markers, parts, fences, fenced = zip(*found, strict=True)
        made: Delivered = self._rules.Delivered(
            *(max(*markers, *parts), max(parts), min(fences), max(fenced))
        )
        return made


def _delivered_in(records: list[object]) -> tuple[int, int, int, int]:
    """Newest marker, part, fence, and newest part before that fence."""
    marker = part = fenced = NO_BATCH
    fence = 0
    for record in records:
        match record:
            case Marker(batch_id=batch_id) if record.query_id == QUERY:
                marker = batch_id
            case Part(batch_id=batch_id):
                part = max(part, batch_id)
            case Fence(number=fence):
                fenced = max(marker, part)
    return marker, part, fence, fenced


def _decided(log: Log) -> list[object]:
    """Everything that is committed, also behind open transactions."""
    return [record.payload for record in log.records if record.transaction.state == "committed"]


def checked_world(number: int, bug: str | None = None) -> CheckedWorld:
    return CheckedWorld(
        schedule(number),
        join_type="left_semi" if number % 2 else "full_outer",
        has_zombies=number % 3 > 0,
        hides_records=number % 4 > 0,
        check_bug=bug,
    )


def violation_of_a_check(number: int, bug: str | None = None) -> str | None:
    """What is wrong after the schedule of this number. None: all is right."""
    try:
        checked_world(number, bug).run()
    except ViolationError as error:
        return str(error)
    return None
