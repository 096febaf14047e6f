"""What the control socket reaches: the engine's verbs, and all that is known of the query."""

import threading
import time
from collections.abc import Callable
from threading import Event

import structlog
from pydantic import BaseModel

from job.errors import RequestError, StreamjoinError
from job.join_spec.expressions import SIDES, Side
from job.join_spec.start_positions import StartPositions
from job.kafka.broker_watch import BrokerWatch
from job.plan.plan import JoinPlan
from job.plan.validation import ValidationRequest
from job.protocol.control import Request, StateRequest, Verb
from job.protocol.reports import StateCount
from job.protocol.results import (
    FailuresResult,
    KeyExplanation,
    KeyRows,
    PlanResult,
    ProgressResult,
    ValidationResult,
)
from job.protocol.status import JobStatus, QueryState
from job.query.engine import Engine
from job.query.explain_key import explain_key
from job.query.lookup_queue import LookupQueue
from job.query.stats import QueryStats
from job.query.validator import Validator

# A count of a million rows takes a core some 4 s: one in a hundred of its seconds, at most.
COUNT_PAUSE_SECONDS = 30.0
COUNT_PAUSE_FACTOR = 100
# While a backlog is read the cores are the join's: it took a sixth of them. No longer than this.
COUNT_LATEST_SECONDS = 1800.0

_log = structlog.get_logger()


class ControlHandler:
    """Answers for the engine; safe to be asked by many at once."""

    def __init__(
        self,
        engine: Engine,
        stats: QueryStats,
        watch: BrokerWatch,
        plan: JoinPlan,
        described: PlanResult,
    ) -> None:
        self._engine = engine
        self._stats = stats
        self._watch = watch
        self._plan = plan
        self._described = described
        self._lookups = LookupQueue()
        self._state_count: StateCount | None = None
        self._closed = Event()
        self._validator = Validator()

    def start(self) -> None:
        """Begin to count the rows in state, every now and then."""
        threading.Thread(target=self._count, name="state-count", daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._validator.close()
        self._lookups.close()

    def status(self) -> JobStatus:
        return self._engine.status().model_copy(
            update={
                "brokers": self._watch.report(),
                "state_count": self._state_count,
                "event_times": self._stats.event_times,
            }
        )

    def command(self, verb: Verb, by: str, starts: StartPositions | None = None) -> None:
        if (starts is None) == (verb == "reset"):
            raise RequestError("reset, and reset alone, says where reading starts")
        self._engine.command(verb, by, starts)

    def read(self, request: Request, caller_gone: Event) -> BaseModel:
        answers: dict[str, Callable[[], BaseModel]] = {
            "plan": lambda: self._described,
            "progress": lambda: ProgressResult(batches=self._stats.batches),
            "failures": lambda: FailuresResult(failures=self._stats.failures),
            "state": lambda: self._rows(_asked_for(request), caller_gone),
            "state_count": lambda: self._requested_count(caller_gone),
            "explain": lambda: self._explain(_asked_for(request), caller_gone),
            "validate": lambda: self._validated(request, caller_gone),
        }
        return answers[request.call]()

    def _rows(self, request: StateRequest, gone: Event) -> KeyRows:
        side = request.side
        if side is None:
            raise RequestError("of which side, left or right?")
        with self._lookups.turn(gone):
            return self._held((side,), request, gone)[0]

    def _held(self, sides: tuple[Side, ...], request: StateRequest, gone: Event) -> list[KeyRows]:
        """Of each side, as of the same batch."""
        reader, batch_id = self._engine.state_reader()
        return [
            reader.rows(side, request.key, batch_id, limit=request.limit, cancel=gone)
            for side in sides
        ]

    def _explain(self, request: StateRequest, gone: Event) -> KeyExplanation:
        with self._lookups.turn(gone):
            left, right = self._held(SIDES, request, gone)
        sentences = explain_key(self._plan, self.status(), left, right)
        return KeyExplanation(sentences=sentences, left=left, right=right)

    def _validated(self, request: Request, gone: Event) -> ValidationResult:
        spec = ValidationRequest(
            spec=request.spec or "",
            state_partitions=self._plan.state_partitions,
            frozen=self._engine.frozen,
        )
        return self._validator.validated(spec, gone, within_seconds=request.within_seconds)

    def _requested_count(self, gone: Event) -> StateCount:
        with self._lookups.turn(gone):
            return self._counted(gone)

    def _background_count(self) -> StateCount:
        """The job's periodic count gives way to any other lookup: CancelledError then."""
        with self._lookups.background_turn() as cancel:
            return self._counted(cancel)

    def _counted(self, cancel: Event) -> StateCount:
        reader, batch_id = self._engine.state_reader()
        self._state_count = reader.count_rows(batch_id, cancel=cancel)
        self._stats.on_state_count(self._state_count)
        return self._state_count

    def _count(self) -> None:
        pause = COUNT_PAUSE_SECONDS
        latest = time.monotonic() + COUNT_LATEST_SECONDS
        while not self._closed.wait(pause):
            pause = COUNT_PAUSE_SECONDS
            status = self._engine.status()
            if status.state is not QueryState.RUNNING or status.last_batch is None:
                continue
            if status.last_batch.has_backlog and time.monotonic() < latest:
                continue
            try:
                state_count = self._background_count()
            except StreamjoinError as error:
                _log.debug("state_count_skipped", reason=str(error))
            except Exception as error:
                # The query may end while its state is counted; the next count will tell.
                _log.warning("state_count_failed", reason=str(error).partition("\n")[0])
            else:
                pause = max(pause, COUNT_PAUSE_FACTOR * state_count.duration_seconds)
                latest = time.monotonic() + pause + COUNT_LATEST_SECONDS


def _asked_for(request: Request) -> StateRequest:
    if request.state is None:
        raise RequestError("which key?")
    return request.state
