"""Executes the calls of the control socket, on the query runner and its statistics."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from threading import Event

import structlog
from pydantic import BaseModel

from job.change.spec_file import SpecFile
from job.change.spec_process import SpecProcess
from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.local import LocalCheckpoint, local_path
from job.checkpoint.reset import is_reset_pending
from job.checkpoint.skipped import read_skipped
from job.checkpoint.state_reader import StateReader
from job.checkpoint.successor import read_successor
from job.control.diagnosis import diagnosis
from job.control.explain_key import explain_key
from job.control.lookup_queue import LookupQueue
from job.control.query_runner import QueryRunner
from job.control.transitions import possible_commands
from job.errors import (
    CheckpointError,
    ConflictError,
    RequestError,
    RetentionError,
    SecurityError,
    SpecError,
    StreamjoinError,
    TopicError,
)
from job.event_time.history import WatermarkLine
from job.event_time.partitions import Offsets
from job.kafka.broker_watch import BrokerWatch
from job.plan.plan import JoinPlan
from job.plan.validation import ValidationRequest
from job.protocol import calls
from job.protocol.progress import BatchProgress
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
from job.protocol.totals import Totals
from job.query.stats import QueryStats
from job.spec.durations import milliseconds
from job.spec.sides import SIDES, Side

# Counting a million rows takes about 4 s of one core; the pause limits counts to 1 % of its time.
COUNT_PAUSE_SECONDS = 30.0
COUNT_PAUSE_FACTOR = 100
# A count slows down the reading of a backlog by a sixth, so it is delayed, by at most this long.
COUNT_LATEST_SECONDS = 1800.0

ExplainKey = Callable[
    [
        calls.Explain,
        StateReader,
        Mapping[Side, KeyRows],
        JobStatus,
        WatermarkLine,
        Sequence[BatchProgress],
        Event,
    ],
    KeyExplanation,
]

_log = structlog.get_logger()


class ControlHandler:
    """Safe for calls from many threads."""

    def __init__(
        self,
        runner: QueryRunner,
        stats: QueryStats,
        watch: BrokerWatch,
        plan: JoinPlan,
        plan_result: PlanResult,
        specs: SpecProcess,
        spec_file: SpecFile,
        explain: ExplainKey = explain_key,
    ) -> None:
        self._runner = runner
        self._stats = stats
        self._watch = watch
        self._plan = plan
        self._plan_result = plan_result
        self._lookups = LookupQueue()
        self._state_count: StateCount | None = None
        self._closed = Event()
        self._specs = specs
        self._spec_file = spec_file
        self._explain_key = explain
        self._delays_ms = {side: milliseconds(plan.side(side).watermark_delay) for side in SIDES}

    def start(self) -> None:
        """Start the periodic count of the state rows."""
        threading.Thread(target=self._count_periodically, name="state-count", daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._lookups.close()

    def status(self) -> JobStatus:
        status, now = self._runner.status(), datetime.now(UTC)
        stopped = self._stopped_checkpoint(status.state)
        read = None if stopped is None else self._stored_offsets(stopped)
        totals = status.totals if stopped is None else _with_skipped(status.totals, stopped)
        status = status.model_copy(
            update={
                "totals": totals,
                "brokers": self._watch.report().with_read(read),
                "state_count": self._state_count,
                "event_times": self._stats.event_times,
                "latency": None if self._plan.real_time else self._stats.latency(now),
                "allowed_commands": possible_commands(status),
            }
        )
        continued_in = None if stopped is None else _continued_in(stopped)
        sentence = diagnosis(self._plan, status, continued_in)
        return status.model_copy(update={"diagnosis": sentence})

    def _stopped_checkpoint(self, state: QueryState) -> Checkpoint | None:
        """The checkpoint of a stopped query. None: the query is not stopped, its reset is not
        complete, or the checkpoint is not on this machine: a stopped job has no session to read
        it."""
        path = local_path(self._plan.checkpoint)
        if state is not QueryState.STOPPED or path is None:
            return None
        checkpoint = LocalCheckpoint(path)
        return None if is_reset_pending(checkpoint) else checkpoint

    def _stored_offsets(self, checkpoint: Checkpoint) -> Offsets | None:
        """Next offsets to read. A job that starts with a stopped query has read none, and
        `checkpoint skip-gap` moves those of a stopped query. None: not known."""
        if not all(topics.names for topics in self._stats.topics.values()):
            return None  # A topic_pattern has no topics before the first start.
        with suppress(StreamjoinError, OSError, ValueError, LookupError):
            if (offsets := checkpoint.offsets) is not None:
                tails = self._stats.empty_tails
                return {side: tails.passed(side, offsets[side]) for side in SIDES}
        return None

    def command(self, command: calls.Command) -> None:
        with _refused_changes():
            self._runner.command(command)

    def read(self, request: calls.Read, caller_gone: Event) -> BaseModel:
        match request:
            case calls.Plan():
                return self._plan_result
            case calls.Progress():
                return ProgressResult(batches=self._stats.batches)
            case calls.Failures():
                return FailuresResult(failures=self._stats.failures)
            case calls.State():
                with self._lookups.turn(caller_gone):
                    return self._state_rows(request, caller_gone)
            case calls.Explain():
                return self._explain(request, caller_gone)
            case calls.StateCount():
                with self._lookups.turn(caller_gone):
                    return self._count_rows(caller_gone)
            case calls.Validate():
                return self._validate(request, caller_gone)
            case calls.ChangePlan():
                with _refused_changes():
                    return self._runner.change_control.plan(request, caller_gone)
            case calls.ReadSpec():
                with _refused_changes():
                    frozen = self._runner.frozen
                    return self._spec_file.compare(frozen, self._specs, request, caller_gone)
            case calls.CheckUndo():
                with _refused_changes():
                    return self._runner.change_control.check_undo()

    def _state_rows(self, request: calls.State, cancel: Event) -> KeyRows:
        reader, batch_id = self._runner.state_reader()
        return reader.rows(request.side, request.key, batch_id, limit=request.limit, cancel=cancel)

    def _explain(self, request: calls.Explain, caller_gone: Event) -> KeyExplanation:
        with self._lookups.turn(caller_gone):
            # First: the state then contains what was read before the offsets of this line.
            present = self._stats.watermark_line(self._delays_ms, live=False)
            reader, batch_id = self._runner.state_reader()
            state = {
                side: reader.rows(
                    side, request.key, batch_id, limit=request.limit, cancel=caller_gone
                )
                for side in SIDES
            }
            facts = (state, self.status(), present, self._stats.batches)
            return self._explain_key(request, reader, *facts, caller_gone)

    def _validate(self, request: calls.Validate, caller_gone: Event) -> ValidationResult:
        spec = ValidationRequest(
            spec=request.spec,
            state_partitions=self._plan.state_partitions,
            frozen=self._runner.frozen,
        )
        return self._specs.validate(spec, caller_gone, within_seconds=request.within_seconds)

    def _count_in_background(self) -> StateCount:
        """Raises CancelledError as soon as a requested lookup arrives."""
        with self._lookups.background_turn() as cancel:
            return self._count_rows(cancel)

    def _count_rows(self, cancel: Event) -> StateCount:
        reader, batch_id = self._runner.state_reader()
        self._state_count = reader.count_rows(batch_id, cancel=cancel)
        self._stats.on_state_count(self._state_count)
        return self._state_count

    def _count_periodically(self) -> None:
        pause = COUNT_PAUSE_SECONDS
        latest = time.monotonic() + COUNT_LATEST_SECONDS
        failed = False
        while not self._closed.wait(pause):
            pause = COUNT_PAUSE_SECONDS
            status = self._runner.status()
            if status.state is not QueryState.RUNNING or status.last_batch is None:
                continue
            if status.last_batch.has_backlog and time.monotonic() < latest:
                continue
            try:
                state_count = self._count_in_background()
            except StreamjoinError as error:
                _log.debug("state_count_skipped", reason=str(error))
            except Exception as error:
                # The query may end during the count: only the next failure is a lasting one.
                level = logging.WARNING if failed else logging.DEBUG
                _log.log(level, "state_count_failed", reason=str(error).partition("\n")[0])
                failed = True
            else:
                failed = False
                pause = max(pause, COUNT_PAUSE_FACTOR * state_count.duration_seconds)
                latest = time.monotonic() + pause + COUNT_LATEST_SECONDS


def _with_skipped(totals: Totals, checkpoint: Checkpoint) -> Totals:
    with suppress(StreamjoinError, OSError, ValueError):
        return totals.with_skipped(read_skipped(checkpoint))
    return totals


def _continued_in(checkpoint: Checkpoint) -> str | None:
    """The checkpoint that continues this one. None: there is none, or it is not known."""
    with suppress(StreamjoinError, OSError, ValueError):
        return read_successor(checkpoint)
    return None


@contextmanager
def _refused_changes() -> Iterator[None]:
    """Raises the errors that refuse a change as the errors of a call."""
    try:
        yield
    except SpecError as error:
        raise RequestError(str(error)) from error
    except (CheckpointError, RetentionError, SecurityError, TopicError) as error:
        raise ConflictError(str(error), allowed=[]) from error
