"""The topics, the broker and the checkpoint of a query of the real-time engine, under a schedule.

Each byte of the schedule chooses the next step and whether it fails (schedules.py).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from job.delivery.commit_protocol import (
    NotDeliveredError,
    ProducerFencedError,
    TakenOverError,
)
from job.event_time.interval import Interval
from job.query import driver as rules_of_the_job
from tests.unit.delivery import interval_protocol
from tests.unit.delivery.broker_model import Broker, Log
from tests.unit.delivery.interval_checkpoint import Checkpoint
from tests.unit.delivery.interval_driver import SLOTS, Driver
from tests.unit.delivery.interval_join import FAR, SIDES, JoinType, Row, expected
from tests.unit.delivery.interval_matches import MATCH_TYPES, wrong_outcomes
from tests.unit.delivery.interval_protocol import DisagreementError, Part
from tests.unit.delivery.schedules import QUERY, Schedule, ViolationError

ROWS = 14
_STEPS_TO_THE_END = 4_000


class World:
    """One query. All drivers except the last are zombies: their executors write, but their writes
    to the checkpoint fail, because they have lost the lease."""

    def __init__(
        self,
        schedule: Schedule,
        protocol: ModuleType = interval_protocol,
        *,
        join_type: JoinType = "full_outer",
        rules: ModuleType = rules_of_the_job,
        driver_bug: str | None = None,
        has_zombies: bool = True,
        changes_delivery: bool = False,
        hides_records: bool = False,
    ) -> None:
        """`hides_records`: at times, transactions of other producers hide records of the slots."""
        self.schedule, self.protocol, self.rules = schedule, protocol, rules
        self.join_type: JoinType = join_type
        self.driver_bug = driver_bug
        self.changes_delivery = changes_delivery
        self.cut_intervals: set[int] = set()
        self.parts: list[Part] = []
        self._max_zombies = 2 if has_zombies else 0
        self._hides_records = hides_records
        self._hidden: set[int] = set()
        """Slots in which a transaction of another producer is open."""
        self._has_rivals = False
        self.broker = Broker()
        self.output = [Log() for _ in range(SLOTS)]
        self.commits = [Log() for _ in range(SLOTS)]
        self.topics: tuple[list[Row], list[Row]] = ([], [])
        self.checkpoint = Checkpoint()
        self.query_id = QUERY
        self.is_exactly_once = True
        self._zombies: list[Driver] = []
        self._lives: dict[Driver, Iterator[None]] = {}
        self.driver = self._new_driver()

    def checkpoint_of(self, driver: object) -> Checkpoint:
        if driver is not self.driver:
            raise NotDeliveredError("the lease is lost")
        return self.checkpoint

    def run(self) -> None:
        self.run_schedule()
        self.finish()
        self.check()

    def run_schedule(self) -> None:
        while not self.schedule.is_over:
            self.turn()

    def run_with_a_late_task(self) -> None:
        """Tasks of a cut interval open their slots only after the next driver has fenced all slots
        and recorded how far the interval is repeated."""
        choose = self.schedule.choose
        for _ in range(ROWS // 2):
            self._append(choose())
        self._step_until(lambda cut: cut is not None)
        self._step(self.driver)  # Spark submits the tasks
        zombie, self.driver = self.driver, self._new_driver()
        self._zombies.append(zombie)
        self._has_rivals = True
        self._step_until(lambda cut: cut is not None and cut.repeat_until is not None)
        for _ in range(ROWS // 2):
            self._append(choose())
        if choose() % 2:
            self.broker.write_control_records()
        for _ in range(choose()):
            if self._zombies:
                self._step(zombie)
        self.finish()
        self.check()

    def _step_until(self, is_met: Callable[[Interval | None], bool]) -> None:
        for _ in range(_STEPS_TO_THE_END):
            if is_met(self.checkpoint.cut):
                return
            self._step(self.driver)
        raise AssertionError("the driver begins no interval")

    def finish(self) -> None:
        """Run until every row has expired. Nothing fails."""
        while len(self.topics[0]) + len(self.topics[1]) < ROWS:
            self._append(len(self.topics[0]) * 37)
        for slot in list(self._hidden):
            self._begin_or_abort_another(slot)
        self._zombies = []
        self.is_exactly_once = True
        self.driver = self._new_driver()
        for step in range(_STEPS_TO_THE_END):
            if step % (_STEPS_TO_THE_END // 10) == 0:
                self._append_far()  # again, because a stop loses the event times of an interval
            if self.checkpoint.watermark(self.checkpoint.last) >= FAR - 1:
                return
            self._step(self.driver)
        raise ViolationError("the query does not end although nothing fails")

    def check(self) -> None:
        self.broker.settle()
        out = self.results()
        letters = {row_id for row_id in out if row_id.startswith("dead/")}
        rows = [row for topic in self.topics for row in topic]
        early = {
            row_id
            for part in self.parts
            if part.batch_id in self.cut_intervals
            for row_id in part.ids
        }
        if self.changes_delivery:
            # Without ids, a row may be delivered twice, and in a pair after it was unmatched.
            shown = {place for row_id in out for place in row_id.removeprefix("dead/").split("|")}
            if lost := [row for row in rows if row.event_time < FAR and row.place not in shown]:
                raise ViolationError(f"lost: {lost}")
            return
        if self.join_type in MATCH_TYPES:
            self._check_outcomes(out)
            return
        wanted = expected(rows, letters, early & out.keys(), self.join_type)
        if wanted != out:
            raise ViolationError(f"missing: {wanted - out}, too many: {out - wanted}")

    def _check_outcomes(self, out: Counter[str]) -> None:
        last = self.checkpoint.last
        states = [self.checkpoint.states[last, slot] for slot in range(SLOTS)]
        computed = {row_id for state in states for row_id in state.computed}
        in_parts = {row_id for part in self.parts for row_id in part.ids}
        lefts, _ = self.topics
        if wrong := wrong_outcomes(out.elements(), computed, in_parts, lefts, self.join_type):
            raise ViolationError(wrong)

    def results(self) -> Counter[str]:
        """Ids of all visible results and dead letters."""
        return Counter(row.id for log in self.output for row in log.committed())

    def turn(self) -> None:
        match choice := self.schedule.choose():
            case _ if self._hides_records and choice % 16 == 0:
                self._begin_or_abort_another(choice // 16 % SLOTS)
            case _ if 140 <= choice < 205 and self._zombies:
                self._step(self._zombies[choice % len(self._zombies)])
            case _ if choice < 205:
                self._step(self.driver)
            case _ if choice < 232:
                self._append(self.schedule.choose())
            case _ if choice < 236:
                self.broker.write_control_records()
            case _ if choice < 247:
                self.broker.deliver_delayed(choice)
            case _ if choice < 250:
                compact(self.commits[choice % SLOTS])
            case _:
                self._disturb(self.schedule.choose())

    def _disturb(self, choice: int) -> None:
        if choice < 20:
            self._has_rivals = True
            self.broker.time_out(choice)
            return
        if choice >= 130 and len(self._zombies) < self._max_zombies:
            self._has_rivals = True
            self._zombies.append(self.driver)  # the process is suspended, and continues later
        self.driver = self._new_driver()

    def _begin_or_abort_another(self, slot: int) -> None:
        """Begin the transaction of another producer, or abort it."""
        handle = self.broker.init(f"other-{slot}")
        if slot in self._hidden:
            self._hidden.remove(slot)
        else:
            self.broker.produce(handle, self.commits[slot], "other")
            self._hidden.add(slot)

    def _append(self, choice: int) -> None:
        """Append a record to one of the topics, with an event time near that of earlier records."""
        side = choice % 2
        topic, count = self.topics[side], len(self.topics[0]) + len(self.topics[1])
        if count < ROWS:
            at = max(1, 1 + count // 2 + (choice // 4) % 8 - 3)
            is_bad = choice // 32 == 7
            topic.append(Row(SIDES[side], len(topic), choice // 2 % SLOTS, at, is_bad))

    def _append_far(self) -> None:
        """Rows that advance the watermark past all others, and do not expire themselves."""
        for topic, side, at in zip(self.topics, SIDES, (FAR, 2 * FAR), strict=True):
            topic.append(Row(side, len(topic), 0, at))

    def _step(self, driver: Driver) -> None:
        try:
            next(self._lives[driver])
        except (DisagreementError, TakenOverError) as error:
            if driver is self.driver:
                raise ViolationError(f"false alarm: {error}") from error
        except ProducerFencedError as error:
            if driver is self.driver and not self._has_rivals:
                raise ViolationError("the query has fenced itself") from error
        except NotDeliveredError:
            pass
        else:
            return
        if driver is self.driver:
            self.driver = self._new_driver()
        else:
            self._zombies.remove(driver)

    def _new_driver(self) -> Driver:
        if self.changes_delivery and self.schedule.choose() % 3 == 0:
            self.is_exactly_once = not self.is_exactly_once
        driver = Driver(self)
        self._lives[driver] = driver.live()
        return driver


def compact(log: Log) -> None:
    """Keep the newest committed record of each key and remove aborted records, as Kafka does."""
    end = log.last_stable_offset
    stable = log.records[:end]
    newest = {
        _key(record.payload): record for record in stable if record.transaction.state == "committed"
    }
    kept = set(map(id, newest.values()))
    log.records = [record for record in stable if id(record) in kept] + log.records[end:]


def _key(record: Any) -> object:
    return record.number if isinstance(record, Part) else type(record)
