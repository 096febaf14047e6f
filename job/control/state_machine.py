"""Desired and actual state of the query.

Commands and signals set the desired state on their threads. The thread of the query runner sets the
actual state, and waits here for changes; the restart of a failed query alone sets it at once.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import structlog

from job.control.command_log import CommandLog
from job.control.transitions import ALLOWED, DESIRED, IN_A_CHANGE, check_state_allows
from job.errors import ConflictError
from job.protocol.calls import Command, Stop, Verb
from job.protocol.status import QueryState

# Conditions that nobody signals are checked this often.
_POLL_SECONDS = 0.5

_log = structlog.get_logger()


class StateMachine:
    def __init__(self, commands: CommandLog) -> None:
        self.commands = commands
        self._changed = threading.Condition()
        self.state = QueryState.STARTING
        self.since = datetime.now(UTC)
        self.desired: QueryState | None = None
        """None: as recorded in the checkpoint, which is not read yet."""
        self.desired_before: QueryState | None = None
        """`desired` before the last command."""
        self.restart_requested = False
        self.completes_interval = False
        """Whether the stop of the query lets an interval end."""
        self.job_is_ending = False

    @contextmanager
    def accept(self, command: Command) -> Iterator[None]:
        """Set the desired state of the command after the body of the context, unless it raises.

        Raises ConflictError if the state does not allow the command.
        """
        verb = command.call
        with self._changed:
            check_state_allows(verb, self.state)
            yield
            state = self.state.value
            _log.info("command", verb=verb, by=command.by, reason=command.reason, state=state)
            self.commands.add(command)
            self.desired_before, self.desired = self.desired, DESIRED[verb]
            self.restart_requested = verb == "restart"
            self.completes_interval = isinstance(command, Stop) and command.completes_interval
            if self.state is QueryState.FAILED and self.desired is QueryState.RUNNING:
                # A client that reads FAILED after this command must have read a new failure.
                self.become(QueryState.RESTARTING)
            self._changed.notify_all()

    def stop_for(self, begins: Callable[[], bool]) -> None:
        """Stop the query, and let its interval end, if `begins` returns True. No command is
        accepted meanwhile."""
        with self._changed:
            if begins():
                self.desired_before, self.desired = self.desired, QueryState.STOPPED
                self.completes_interval = True

    def check_nothing_pending(self, verb: Verb) -> None:
        """Raises ConflictError if `verb` would replace a command that has not taken effect."""
        pending = self._pending
        if pending is not None:
            raise ConflictError(
                f"{verb} is not possible while {pending} is pending: wait until {pending} has "
                "taken effect",
                allowed=[other for other in ALLOWED[self.state] if other not in IN_A_CHANGE],
            )

    @property
    def _pending(self) -> str | None:
        """What will end the run of the query. None: the query continues."""
        if self.job_is_ending:
            return "the end of the job"
        if self.restart_requested:
            return "restart"
        if self.desired is self.state or not self.stop_requested:
            return None
        return "stop" if self.desired is QueryState.STOPPED else "pause"

    def end_job(self) -> None:
        """May be called from a signal handler, which must not wait for the lock."""
        self.job_is_ending = True
        threading.Thread(target=self.wake, daemon=True).start()

    def become(self, state: QueryState) -> None:
        with self._changed:
            if state is not self.state:
                _log.info("state", state=state.value, before=self.state.value)
                self.since = datetime.now(UTC)
            self.state = state
            self._changed.notify_all()

    def wake(self) -> None:
        """Check the condition of the waiting thread now."""
        with self._changed:
            self._changed.notify_all()

    def wait_until(self, condition: Callable[[], object], timeout: timedelta | None = None) -> None:
        """Return once the condition is true, or after `timeout`."""
        deadline = None if timeout is None else time.monotonic() + timeout.total_seconds()
        with self._changed:
            while not condition() and (deadline is None or time.monotonic() < deadline):
                self._changed.wait(_POLL_SECONDS)

    @property
    def stop_requested(self) -> bool:
        """Whether the query should be stopped or paused."""
        return self.desired in {QueryState.STOPPED, QueryState.PAUSED}
