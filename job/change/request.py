"""A change of the join, or its undo, that a command requests from the job, and the query that
continues."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from threading import Event, Lock

import structlog

from job.change.files import SpecTexts
from job.change.hand_over import hand_over
from job.change.old_query import Wait, interval_to_repeat, waits, with_deadline
from job.change.plan import ChangePlan, described
from job.change.planner import check_change, check_state_partitions
from job.change.query import Query, WaitingChange
from job.change.request_report import RequestReport
from job.change.sent_spec import PlannedSpec, PlanOf, PlanRequest, WrittenSpec, read_sent_spec
from job.change.spec_process import SpecProcess
from job.change.table_reload import TableReload
from job.change.undo import hand_back, undoable
from job.change.warm_up import saves_time, warm_up
from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.cli import leased
from job.checkpoint.successor import read_successor_spec
from job.errors import BusyError, ConflictError
from job.kafka.kafka_admin import KafkaAdmin
from job.plan.plan import JoinPlan
from job.protocol import calls
from job.protocol.reports import ChangeRequestReport
from job.protocol.results import ChangePlanResult, UndoResult
from job.protocol.status import JobStatus, Phase
from job.query.runtime import Resources
from job.redaction import Redaction
from job.settings import JobSettings
from job.spark.failures import failure_of
from job.spec.spec import spec_from_yaml
from job.spec.variables import variables_hidden, variables_of

CHANGES: frozenset[calls.Verb] = frozenset({"change", "undo"})
"""Verbs after which another query continues."""

BY_JOB = "the job"
"""`requested_by` of a change that no client has sent."""

_log = structlog.get_logger()


class ChangeRequest:
    """A change waits while the old query runs: it can be refused, and commands can cancel it. Then
    the query stops, and the change is made.

    Keeps the report of the last request for the status, and stores it in the checkpoint.
    """

    def __init__(
        self,
        running: PlannedSpec,
        plan_of: PlanOf,
        settings: JobSettings,
        redaction: Redaction,
        specs: SpecProcess,
    ) -> None:
        self._running = running
        self._plan_of = plan_of
        self._settings = settings
        self._redaction = redaction
        self._specs = specs
        self._last_planned: PlannedSpec | None = None
        self._requested: Callable[[Resources], PlannedSpec] | None = None
        self._waiting: WaitingChange | None = None
        self._prepared: WaitingChange | None = None
        self._lock = Lock()
        """Held while `_waiting` and the report change together."""
        self._report = RequestReport()
        self._reload = TableReload(running)

    @property
    def report(self) -> ChangeRequestReport | None:
        """Of the last request. None: there was none."""
        return self._report.last

    @property
    def is_requested(self) -> bool:
        """Whether the query stops, or has stopped, for a change."""
        return self._requested is not None

    @property
    def is_waiting(self) -> bool:
        """Whether a change waits while the query runs."""
        return self._waiting is not None

    def check_allowed(self, verb: calls.Verb) -> None:
        """Raises ConflictError if a change that waits, or is made, forbids `verb`."""
        if self.is_requested:
            raise ConflictError(
                "the join is being changed: try again once `last_change` has failed or the new "
                "query runs",
                allowed=[],
            )
        if verb in CHANGES and self.is_waiting:
            raise ConflictError(
                "another change of the join waits (`last_change`): cancel it with DELETE "
                "/v1/query/change, or wait until it is made",
                allowed=["pause", "stop", "restart", "cancel"],
            )
        if verb == "cancel" and not self.is_waiting:
            raise ConflictError(
                "no change waits, so there is none to cancel: `last_change` in GET /v1/query "
                "contains the last one",
                allowed=[],
            )

    def before_command(self, command: calls.Command) -> None:
        """Called before a command takes effect. Cancels a change that waits, except for `resume`.
        Raises ConflictError as `check_allowed`."""
        self.check_allowed(command.call)
        if not isinstance(command, calls.Resume) and (waiting := self._waiting) is not None:
            _log.info("change_cancelled", verb=command.call, by=command.by)
            error = f"{command.call} of {command.by} has cancelled the change while it waited"
            self._end(waiting, error)

    def plan_spec(self, request: calls.ChangePlan, caller_gone: Event) -> PlannedSpec:
        """The spec with its plan, from another process. A `Change` with this spec follows.

        Raises SpecError if the spec is invalid, and StreamjoinError as `SpecProcess.plan`.
        """
        running = self._running.written
        plan_request = PlanRequest(
            request.spec,
            running,
            variables_of(running.text, os.environ),
            self._settings.partitions_of_new_state,
        )
        with self._secrets_hidden():
            self._last_planned = self._specs.plan(
                plan_request, caller_gone, within_seconds=request.within_seconds
            )
        return self._last_planned

    def request(self, command: calls.Change | calls.Undo) -> None:
        """Raises BusyError if the spec is not that of the last call of `plan_spec`, RequestError if
        the number of state partitions is invalid. Parses nothing: the caller holds a lock.
        """
        if isinstance(command, calls.Undo):
            self._report.begin(command.by, None)
            self._requested = self._undo
            return
        check_state_partitions(command.state_partitions, self._settings.state_partitions)
        sent = self._last_planned
        if sent is None or sent.written.text != command.spec:
            raise BusyError(
                "the spec is not the one that was planned last: repeat the call",
                retry_after_seconds=1,
            )
        self._report.begin(command.by, sent.plan.checkpoint)
        self._waiting = WaitingChange(sent, command.state_partitions)

    def check_undo(self, resources: Resources) -> UndoResult:
        """Raises ConflictError if the change cannot be undone at this moment. The query may run."""
        if not resources.has_jvm:
            return UndoResult(checkpoint=None)
        new = Checkpoint(resources.session(), self._running.plan.checkpoint)
        old, _ = undoable(new)
        return UndoResult(checkpoint=old.folder.root)

    def plan(
        self,
        sent: PlannedSpec,
        state_partitions: int | None,
        resources: Resources,
        job: JobStatus,
    ) -> ChangePlanResult:
        """The plan of a change at this moment. The query may run. Raises StreamjoinError if the
        change is refused."""
        check_state_partitions(state_partitions, self._settings.state_partitions)
        plan = self._check(sent, state_partitions, resources)
        repeats = interval_to_repeat(self._query(self._running.plan, resources), job)
        shown = replace(plan, late_rows=job.totals.late_rows, repeats=repeats)
        return described(shown, cores=os.cpu_count() or 1)

    def prepare(
        self, resources: Resources, phase: Phase | None, is_over: Callable[[], object]
    ) -> bool:
        """Wait until the old query can stop, check the change again, and run the new query for some
        time next to the old one. Returns whether the change can be made.

        `phase`: of the old query. `is_over`: whether its run has ended, or must end. A change that
        is refused is reported: the error is not raised.
        """
        if (waiting := self._waiting) is None:
            return False

        def is_cancelled() -> bool:
            return self._waiting is not waiting or bool(is_over())

        self._store_report(resources)
        try:
            self._await_repetition(waiting, resources, phase, is_cancelled)
            if not is_cancelled():
                plan = self._check(waiting.sent, waiting.state_partitions, resources)
                self._run_warm_up(waiting, plan, resources, is_cancelled)
        except Exception as error:
            self._refuse(waiting, self._failure(error))
        if self._waiting is not waiting:
            self._store_report(resources)
        self._prepared = waiting
        return not is_cancelled()

    def begin(self) -> bool:
        """Begin to make the change that is prepared. False: it was cancelled."""
        with self._lock:
            if (waiting := self._waiting) is None or waiting is not self._prepared:
                return False
            self._requested = partial(self._change, waiting.sent, waiting.state_partitions)
            self._waiting = None
            self._report.end_wait()
        return True

    def query_failed(self, error: Exception, resources: Resources) -> None:
        """End a change that waits: the query runs again later, or not at all."""
        if (waiting := self._waiting) is not None:
            self._refuse(waiting, f"the query failed while the change waited: {error}")
            self._store_report(resources)

    def _end(self, waiting: WaitingChange, error: str) -> bool:
        """Report that the change was not made. Returns False if it has ended already."""
        with self._lock:
            if self._waiting is not waiting:
                return False
            self._waiting = None
            self._report.fail(error)
        return True

    def _refuse(self, waiting: WaitingChange, error: str) -> None:
        if self._end(waiting, error):
            _log.error("change_failed", reason=error)

    def _failure(self, error: Exception) -> str:
        failure = failure_of(error, self._running.plan.bootstrap_servers)
        self._redaction.scrub_error(failure)
        return str(failure)

    def read_report(self, checkpoint: Checkpoint) -> None:
        """Read the report of the last request in an earlier run of the job."""
        self._report.read(checkpoint)

    def _store_report(self, resources: Resources) -> None:
        """For the next start of the job. If this fails, the log has a warning: the report is in the
        status."""
        try:
            self._report.store(resources.checkpoint())
        except Exception as error:
            _log.warning("change_report_not_stored", reason=self._failure(error))

    def _check(
        self, sent: PlannedSpec, state_partitions: int | None, resources: Resources
    ) -> ChangePlan:
        old, new = (self._query(plan, resources) for plan in (self._running.plan, sent.plan))
        with self._secrets_hidden(self._running.written.text):
            return check_change(old, new, state_partitions or self._settings.state_partitions)

    @staticmethod
    def _query(plan: JoinPlan, resources: Resources) -> Query:
        return Query(plan, Checkpoint(resources.session(), plan.checkpoint))

    def make(self, resources: Resources) -> PlannedSpec | None:
        """The query that continues the stopped one. None: the request has failed. The error is
        written into the report and not raised."""
        assert self._requested is not None
        try:
            successor = self._requested(resources)  # Until it runs, commands are refused.
        except Exception as error:
            reason = self._failure(error)
            self._report.fail(reason)
            _log.error("change_failed", reason=reason)
            self._store_report(resources)
            self._requested = None
            return None
        self._report.made(lambda: Checkpoint(resources.session(), successor.plan.checkpoint))
        return successor

    def successor_of(self, checkpoint: Checkpoint) -> PlannedSpec | None:
        """The query that continues the one of `checkpoint` after a change in an earlier run of the
        job. None: there was no change, or the user starts the new query."""
        text = read_successor_spec(checkpoint)
        return None if text is None else self._planned(text)

    def _planned(self, text: str) -> PlannedSpec:
        running = self._running.written
        with self._secrets_hidden(running.text):
            sent = read_sent_spec(text, running, os.environ)
            return PlannedSpec(sent, self._plan_of(sent.spec))

    def reload_table(self, checkpoint: Checkpoint, kafka: KafkaAdmin) -> bool:
        """Before the query starts: request a change that reads its table again, if that is needed.

        Returns whether the change comes before the query: it waits while the query repeats a batch
        or an interval. Raises BrokerError.
        """
        last = self.report
        has_failed = last is not None and last.requested_by == BY_JOB and last.made_at is None
        if not self._reload.is_needed(checkpoint, kafka, has_failed=has_failed):
            return False
        try:
            sent = self._planned(self._reload.spec(checkpoint))
        except Exception as error:
            self._report.begin(BY_JOB, None)
            self._report.fail(self._failure(error))
            return False
        self._report.begin(BY_JOB, sent.plan.checkpoint)
        self._waiting = WaitingChange(sent, None)
        if not checkpoint.is_committed or checkpoint.interrupted_interval is not None:
            return False
        self._prepared = self._waiting
        return True

    def _change(
        self, successor: PlannedSpec, state_partitions: int | None, resources: Resources
    ) -> PlannedSpec:
        """The new query, which continues the stopped one."""
        running, text = self._running.written.text, successor.written.text
        with self._secrets_hidden(running):
            old = Query(self._running.plan, resources.checkpoint())
            new = self._query(successor.plan, resources)
            with leased(new.checkpoint):
                made = hand_over(
                    *(old, new, state_partitions or self._settings.state_partitions),
                    SpecTexts(old=running, new=text),
                )
        return replace(successor, plan=made.new)

    def _await_repetition(
        self,
        waiting: WaitingChange,
        resources: Resources,
        phase: Phase | None,
        is_cancelled: Callable[[], bool],
    ) -> None:
        """Return once the old query can stop, or the change is cancelled."""
        old = Query(self._running.plan, resources.checkpoint())
        for wait in with_deadline(waits(old, phase), old.plan, self._settings):
            self._report_wait(waiting, wait.text, wait)
            if is_cancelled():
                return

    def _report_wait(self, waiting: WaitingChange, text: str, wait: Wait | None = None) -> None:
        with self._lock:
            if self._waiting is waiting:
                if self._report.last and self._report.last.waits_for is None:
                    _log.info("change_waits", reason=text)
                self._report.wait_for(text, wait)

    def _run_warm_up(
        self,
        waiting: WaitingChange,
        plan: ChangePlan,
        resources: Resources,
        is_cancelled: Callable[[], bool],
    ) -> None:
        """If this fails, the log has a warning: the change needs no warm-up."""
        new = plan.new
        if not saves_time(plan):
            return
        try:
            session = resources.warm_up_session(new)
            if session is not None:
                self._report_wait(waiting, "the new query makes its warm-up")
                folder = Checkpoint(session, new.checkpoint).folder
                warm_up(session, plan, folder, is_cancelled)
        except Exception as error:
            _log.warning("warm_up_failed", reason=self._failure(error))

    def _undo(self, resources: Resources) -> PlannedSpec:
        """The old query, which continues instead of the stopped one."""
        new = Query(self._running.plan, resources.checkpoint())
        old, text = undoable(new.checkpoint)
        written = WrittenSpec(text, spec_from_yaml(text, os.environ))
        with self._secrets_hidden(text, self._running.written.text):
            successor = PlannedSpec(written, self._plan_of(written.spec))
            hand_back(Query(successor.plan, old), new)
        return successor

    @contextmanager
    def _secrets_hidden(self, *texts: str) -> Iterator[None]:
        """Removes secrets from every error raised inside, and the values of variables from the
        problems of the specs `texts`. The caller of the API receives the error."""
        try:
            with ExitStack() as stack:
                for text in texts:
                    stack.enter_context(variables_hidden(text, os.environ))
                yield
        except Exception as error:
            self._redaction.scrub_error(error)
            raise
