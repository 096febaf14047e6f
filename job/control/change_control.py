"""Calls about a change while the query runs, and the moment at which the query stops for it."""

from collections.abc import Callable
from threading import Event

from job.change.request import ChangeRequest
from job.checkpoint.checkpoint import Checkpoint
from job.control.state_machine import StateMachine
from job.control.transitions import check_state_allows
from job.kafka.kafka_admin import KafkaAdmin
from job.protocol.calls import ChangePlan, Verb
from job.protocol.results import ChangePlanResult, UndoResult
from job.protocol.status import JobStatus, Phase
from job.query.runtime import Resources


class ChangeControl:
    def __init__(
        self,
        change: ChangeRequest,
        machine: StateMachine,
        resources: Resources,
        status: Callable[[], JobStatus],
    ) -> None:
        self._change = change
        self._machine = machine
        self._resources = resources
        self._status = status

    def plan(self, request: ChangePlan, caller_gone: Event) -> ChangePlanResult:
        """The plan of a change at this moment. Raises StreamjoinError if the change is refused."""
        self._check_possible("change")
        sent = self._change.plan_spec(request, caller_gone)
        return self._change.plan(sent, request.state_partitions, self._resources, self._status())

    def check_undo(self) -> UndoResult:
        """Raises StreamjoinError if the last change cannot be undone at this moment."""
        self._check_possible("undo")
        return self._change.check_undo(self._resources)

    def _check_possible(self, verb: Verb) -> None:
        check_state_allows(verb, self._machine.state)
        self._change.check_allowed(verb)
        self._machine.check_nothing_pending(verb)

    def reload_table(self, checkpoint: Checkpoint, kafka: KafkaAdmin) -> bool:
        """Before the query starts: change to a query that reads the table again, if the table may
        lack deletions. Returns whether the change comes first. Raises BrokerError."""
        if not self._change.reload_table(checkpoint, kafka):
            return False
        self._machine.stop_for(self._change.begin)
        return True

    def prepare(self, phase: Phase | None, is_over: Callable[[], object]) -> None:
        """Prepare the change that waits, then stop the query for it. The query continues if the
        change is refused or cancelled. If the run of the query ends first, the change still waits.

        `phase`: of the running query. `is_over`: whether the run has ended, or must end.
        """
        if self._change.prepare(self._resources, phase, is_over):
            self._machine.stop_for(self._change.begin)
