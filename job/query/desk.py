"""What the control socket reaches: the engine's verbs, and all that is known of the query."""

import threading
import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

import structlog
from pydantic import BaseModel

from job.errors import BusyError, RequestError, SpecError, StreamjoinError
from job.join_spec.expressions import SIDES, Side
from job.join_spec.model import spec_from_yaml
from job.join_spec.starts import Starts
from job.kafka.broker_watch import BrokerWatch
from job.plan.explain import explained
from job.plan.fingerprint import refused
from job.plan.model import JoinPlan
from job.plan.planner import join_plan
from job.protocol.answers import (
    FailuresAnswer,
    FieldProblem,
    FrozenChange,
    PlanAnswer,
    ProgressAnswer,
    StateAnswer,
    ValidationAnswer,
    WhyAnswer,
)
from job.protocol.control import Request, StateRequest, Verb
from job.protocol.progress import JobStatus, QueryState
from job.protocol.reports import StateCensus
from job.query.account import Account
from job.query.engine import Engine
from job.query.why import why

# A count of a million rows takes a core some 4 s: one in a hundred of its seconds, at most.
CENSUS_PAUSE_SECONDS = 30.0
CENSUS_PAUSE_FACTOR = 100
# While a backlog is read the cores are the join's: it took a sixth of them. No longer than this.
CENSUS_LATEST_SECONDS = 1800.0
# After a look-up the core is the query's for at least as long.
LOOK_UP_PAUSE_FACTOR = 1

Found = TypeVar("Found", StateAnswer, StateCensus, WhyAnswer)

_log = structlog.get_logger()


class Desk:
    """Answers for the engine; safe to be asked by many at once."""

    def __init__(
        self,
        engine: Engine,
        account: Account,
        watch: BrokerWatch,
        plan: JoinPlan,
        described: PlanAnswer,
    ) -> None:
        self._engine = engine
        self._account = account
        self._watch = watch
        self._plan = plan
        self._described = described
        self._looking_up = threading.Lock()
        self._free_at = 0.0
        self._census: StateCensus | None = None
        self._closed = Event()

    def start(self) -> None:
        """Begin to count the rows in state, every now and then."""
        threading.Thread(target=self._count, name="census", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def status(self) -> JobStatus:
        return self._engine.status().model_copy(
            update={
                "brokers": self._watch.report(),
                "census": self._census,
                "event_times": self._account.event_times,
            }
        )

    def command(self, verb: Verb, by: str, starts: Starts | None = None) -> None:
        if (starts is None) == (verb == "reset"):
            raise RequestError("reset, and reset alone, says where reading starts")
        self._engine.command(verb, by, starts)

    def answer(self, request: Request, gone: Event) -> BaseModel:
        answers: dict[str, Callable[[], BaseModel]] = {
            "plan": lambda: self._described,
            "progress": lambda: ProgressAnswer(batches=self._account.batches),
            "failures": lambda: FailuresAnswer(failures=self._account.failures),
            "state": lambda: self._rows(_asked_for(request), gone),
            "state_census": lambda: self._counted(gone),
            "why": lambda: self._why(_asked_for(request), gone),
            "validate": lambda: self._validated(request.spec),
        }
        return answers[request.call]()

    def _rows(self, request: StateRequest, gone: Event) -> StateAnswer:
        side = request.side
        if side is None:
            raise RequestError("of which side, left or right?")
        return self._one_at_a_time(lambda: self._held((side,), request, gone)[0])

    def _held(
        self, sides: tuple[Side, ...], request: StateRequest, gone: Event
    ) -> list[StateAnswer]:
        """Of each side, as of the same batch."""
        reader, batch_id = self._engine.state_reader()
        return [
            reader.rows(side, request.key, batch_id, limit=request.limit, cancel=gone)
            for side in sides
        ]

    def _why(self, request: StateRequest, gone: Event) -> WhyAnswer:
        def answer() -> WhyAnswer:
            left, right = self._held(SIDES, request, gone)
            sentences = why(self._plan, self.status(), left, right)
            return WhyAnswer(sentences=sentences, left=left, right=right)

        return self._one_at_a_time(answer)

    def _validated(self, text: str | None) -> ValidationAnswer:
        """Nothing is filled in from this process's environment: that would tell it to the asker."""
        try:
            plan = join_plan(
                spec_from_yaml(text or "", {}), state_partitions=self._plan.state_partitions
            )
        except SpecError as error:
            problems = [
                FieldProblem(field=problem.field, message=problem.message)
                for problem in error.problems
            ]
            return ValidationAnswer(problems=problems, plan=None, checkpoint_changes=None)
        return ValidationAnswer(
            problems=[], plan=explained(plan), checkpoint_changes=self._changes(plan)
        )

    def _changes(self, plan: JoinPlan) -> list[FrozenChange] | None:
        frozen = self._engine.frozen
        if frozen is None:
            return None
        return [
            FrozenChange(field=change.field, frozen=change.frozen, wanted=change.wanted)
            for change in refused(plan, frozen)
        ]

    def _counted(self, gone: Event) -> StateCensus:
        def count() -> StateCensus:
            reader, batch_id = self._engine.state_reader()
            return reader.census(batch_id, cancel=gone)

        self._census = self._one_at_a_time(count)
        self._account.counted(self._census)
        return self._census

    def _one_at_a_time(self, look_up: Callable[[], Found]) -> Found:
        """Never two look-ups at once, and a pause after each: they share cores with the query."""
        wait = self._free_at - time.monotonic()
        if wait > 0 or not self._looking_up.acquire(blocking=False):
            raise BusyError(
                "the state is looked up one call at a time, with a pause after each: ask again",
                retry_after_seconds=max(1.0, wait),
            )
        began = time.monotonic()
        try:
            return look_up()
        finally:
            ended = time.monotonic()
            self._free_at = ended + LOOK_UP_PAUSE_FACTOR * (ended - began)
            self._looking_up.release()

    def _count(self) -> None:
        pause = CENSUS_PAUSE_SECONDS
        latest = time.monotonic() + CENSUS_LATEST_SECONDS
        while not self._closed.wait(pause):
            pause = CENSUS_PAUSE_SECONDS
            status = self._engine.status()
            if status.state is not QueryState.RUNNING or status.last_batch is None:
                continue
            if status.last_batch.has_backlog and time.monotonic() < latest:
                continue
            try:
                census = self._counted(self._closed)
            except StreamjoinError as error:
                _log.debug("census_left_out", reason=str(error))
            except Exception as error:
                # The query may end while its state is counted; the next count will tell.
                _log.warning("census_failed", reason=str(error).partition("\n")[0])
            else:
                pause = max(pause, CENSUS_PAUSE_FACTOR * census.seconds)
                latest = time.monotonic() + pause + CENSUS_LATEST_SECONDS


def _asked_for(request: Request) -> StateRequest:
    if request.state is None:
        raise RequestError("which key?")
    return request.state
