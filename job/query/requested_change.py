"""A change of the join, or its undo, that a command requests from the job, and the query that
continues."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from threading import Event

import structlog

from job.change.explain import explained, facts
from job.change.planning import PlanRequest
from job.change.sent_spec import PlannedSpec, PlanOf, WrittenSpec, sent_spec
from job.checkpoint.changes import SpecTexts, old_spec, predecessor, successor_spec
from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.cli import leased
from job.errors import BusyError, ConflictError, RequestError
from job.join_spec.spec import spec_from_yaml
from job.join_spec.variables import variables_hidden, variables_of
from job.protocol.reports import ChangeRequestReport
from job.protocol.results import ChangePlanResult, UndoResult
from job.protocol.status import JobStatus, Phase
from job.query import changing
from job.query.change_warm_up import RECORDS_MIN, warm_up
from job.query.old_query import POLL_SECONDS, interval_to_repeat, repetition
from job.query.runtime import Resources
from job.query.validator import ChangePlanner
from job.redaction import Redaction
from job.settings import JobSettings
from job.spark.failures import failure_of
from job.spark.session import Jvm

_log = structlog.get_logger()


@dataclass(frozen=True)
class Successor:
    """The query that continues after a change."""

    query: PlannedSpec
    jvm: Jvm | None
    """The JVM of the old query. None: the new query needs another one."""


class RequestedChange:
    """Keeps the report of the last request for the status."""

    def __init__(
        self,
        running: PlannedSpec,
        plan_of: PlanOf,
        settings: JobSettings,
        redaction: Redaction,
        planner: ChangePlanner | None = None,
    ) -> None:
        self._running = running
        self._plan_of = plan_of
        self._settings = settings
        self._redaction = redaction
        self._planner = planner or ChangePlanner()
        self._last_planned: PlannedSpec | None = None
        self._requested: Callable[[Resources], PlannedSpec] | None = None
        self._preparation: Callable[[Resources, Phase | None, Callable[[], bool]], None] | None
        self._preparation = None
        self.report: ChangeRequestReport | None = None

    def close(self) -> None:
        self._planner.close()

    @property
    def is_requested(self) -> bool:
        return self._requested is not None

    def check_not_requested(self) -> None:
        """Raises ConflictError while a change is made."""
        if self.is_requested:
            raise ConflictError(
                "the join is being changed: try again once `last_change` has failed or the new "
                "query runs",
                allowed=[],
            )

    def planned(self, text: str, caller_gone: Event, *, within_seconds: float) -> PlannedSpec:
        """The spec `text` with its plan, from another process. `request` with this text follows.

        Raises SpecError if the spec is invalid, and StreamjoinError as `SpecProcess.run`.
        """
        request = PlanRequest(
            text,
            self._running.written,
            variables_of(self._running.written.text, os.environ),
            self._settings.partitions_of_new_state,
        )
        with self._secrets_hidden(text):
            planned = self._planner.plan(request, caller_gone, within_seconds=within_seconds)
        self._last_planned = planned
        return planned

    def request(self, by: str, text: str | None, state_partitions: int | None) -> None:
        """`text`: YAML of the new spec. None: undo the last change. `state_partitions`: number for
        the new query. None: as many as the old query has.

        Raises BusyError if the text is not that of the last call of `planned`, RequestError if the
        number is invalid. Parses nothing: the caller holds a lock.
        """
        if text is None:
            self._report_request(by, None)
            self._requested = self._undo
            return
        self._check_state_partitions(state_partitions)
        sent = self._last_planned
        if sent is None or sent.written.text != text:
            raise BusyError(
                "the spec is not the one that was planned last: repeat the call",
                retry_after_seconds=1,
            )
        self._report_request(by, sent.plan.checkpoint)
        self._requested = partial(self._change, sent, state_partitions)
        self._preparation = partial(self._prepare, sent, state_partitions)

    def check_undo(self, resources: Resources) -> UndoResult:
        """Raises ConflictError if the change cannot be undone at this moment. The query may run."""
        if not resources.has_jvm:
            return UndoResult(checkpoint=None)
        new = Checkpoint(resources.session(), self._running.plan.checkpoint)
        old, _ = self._undoable(new)
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
        self._check_state_partitions(state_partitions)
        made = self._checked(sent, state_partitions, resources)
        old, new = self._running.plan, sent.plan
        plan_facts = facts(
            *(new, made.comparison, made.replay, made.needed_ms),
            cores=os.cpu_count() or 1,
            late_rows=job.totals.late_rows,
            repeats=interval_to_repeat(old, Checkpoint(resources.session(), old.checkpoint), job),
        )
        text = explained(new, made.comparison, made.replay, plan_facts)
        return ChangePlanResult(text=text, facts=plan_facts)

    def prepare(
        self, resources: Resources, phase: Phase | None, is_cancelled: Callable[[], bool]
    ) -> None:
        """Let the old query repeat an interrupted interval, then run the new query for some time
        next to it. `phase`: of the old query.

        A failure is logged and not raised: the change reports its errors itself.
        """
        prepare, self._preparation = self._preparation, None
        if prepare is None:
            return
        try:
            prepare(resources, phase, is_cancelled)
        except Exception as error:
            failure = failure_of(error, self._running.plan.bootstrap_servers)
            self._redaction.scrub_error(failure)
            _log.warning("preparation_failed", reason=str(failure))

    def _checked(
        self, sent: PlannedSpec, state_partitions: int | None, resources: Resources
    ) -> changing.ChangePlan:
        spark, old, new = resources.session(), self._running.plan, sent.plan
        with self._secrets_hidden(sent.written.text):
            return changing.checked(
                *(old, new, Checkpoint(spark, old.checkpoint), Checkpoint(spark, new.checkpoint)),
                state_partitions or self._settings.state_partitions,
            )

    def make(self, resources: Resources) -> PlannedSpec | None:
        """The query that continues the stopped one. None: the request has failed. The error is
        written into the report and not raised."""
        assert self._requested is not None
        assert self.report is not None
        self._preparation = None  # The old query may have ended before it.
        try:
            return self._requested(resources)  # Until the job runs it, commands are refused.
        except Exception as error:
            failure = failure_of(error, self._running.plan.bootstrap_servers)
            self._redaction.scrub_error(failure)
            self.report = self.report.model_copy(
                update={"failed_at": datetime.now(UTC), "error": str(failure)}
            )
            _log.error("change_failed", **self.report.model_dump(mode="json"))
            self._requested = None
            return None

    def successor_of(self, checkpoint: Checkpoint) -> PlannedSpec | None:
        """The query that continues the one of `checkpoint` after a change in an earlier run of the
        job. None: there was no change, or the user starts the new query."""
        text = successor_spec(checkpoint)
        if text is None:
            return None
        sent = sent_spec(text, self._running.written, os.environ)
        with self._secrets_hidden(text):
            return self._planned(sent)

    def _report_request(self, by: str, checkpoint: str | None) -> None:
        self.report = ChangeRequestReport(
            requested_by=by, requested_at=datetime.now(UTC), checkpoint=checkpoint
        )

    def _change(
        self, successor: PlannedSpec, state_partitions: int | None, resources: Resources
    ) -> PlannedSpec:
        """The new query, which continues the stopped one."""
        text = successor.written.text
        with self._secrets_hidden(text):
            old = resources.checkpoint()
            new = Checkpoint(resources.session(), successor.plan.checkpoint)
            with leased(new):
                made = changing.hand_over(
                    *(self._running.plan, successor.plan, old, new),
                    state_partitions or self._settings.state_partitions,
                    SpecTexts(old=self._running.written.text, new=text),
                )
        plan = replace(successor.plan, state_partitions=made.replay.state_partitions)
        return replace(successor, plan=plan)

    def _prepare(
        self,
        sent: PlannedSpec,
        state_partitions: int | None,
        resources: Resources,
        phase: Phase | None,
        is_cancelled: Callable[[], bool],
    ) -> None:
        if phase is Phase.CATCH_UP:
            self._await_repetition(resources.checkpoint(), is_cancelled)
        if not is_cancelled():
            self._run_warm_up(sent, state_partitions, resources, is_cancelled)

    def _await_repetition(self, checkpoint: Checkpoint, is_cancelled: Callable[[], bool]) -> None:
        """Return once a change finds no interrupted interval. The running query repeats it."""
        assert self.report is not None
        for interval in repetition(self._running.plan, checkpoint):
            left = interval.records_left(checkpoint.offsets)
            if self.report.repeated_interval is None:
                _log.info("change_waits", interval=interval.batch_id, records_left=left)
            self.report = self.report.model_copy(
                update={"repeated_interval": interval.batch_id, "records_left": left}
            )
            if is_cancelled():
                break
            time.sleep(POLL_SECONDS)
        self.report = self.report.model_copy(
            update={"repeated_interval": None, "records_left": None}
        )

    def _run_warm_up(
        self,
        sent: PlannedSpec,
        state_partitions: int | None,
        resources: Resources,
        is_cancelled: Callable[[], bool],
    ) -> None:
        new, made = sent.plan, self._checked(sent, state_partitions, resources)
        # Only a query that starts registers its schemas.
        has_schema = (new.output.schema or new.output.key_schema) is not None
        if has_schema or made.replay.records < RECORDS_MIN:
            return
        session = resources.warm_up_session(new)
        if session is not None:
            folder = Checkpoint(session, new.checkpoint).folder
            warm_up(session, new, made.replay, folder, is_cancelled)

    def _undo(self, resources: Resources) -> PlannedSpec:
        """The old query, which continues instead of the stopped one."""
        new = resources.checkpoint()
        old, text = self._undoable(new)
        written = WrittenSpec(text, spec_from_yaml(text, os.environ))
        with self._secrets_hidden(text):
            successor = self._planned(written)
            changing.take_back(old, new)
        return successor

    def _undoable(self, new: Checkpoint) -> tuple[Checkpoint, str]:
        """The checkpoint and the spec of the query that `new` continues."""
        old = predecessor(new)
        changing.check_undo(old, new)
        return old, old_spec(old)

    def _check_state_partitions(self, requested: int | None) -> None:
        configured = self._settings.state_partitions
        if None not in {requested, configured} and requested != configured:
            raise RequestError(
                f"`state_partitions` must not be {requested}: STREAMJOIN_STATE_PARTITIONS of the "
                f"job is {configured}, and the next start of the job would be refused. Remove the "
                "variable, restart the job, and send the change again"
            )

    def _planned(self, written: WrittenSpec) -> PlannedSpec:
        return PlannedSpec(written, self._plan_of(written.spec))

    @contextmanager
    def _secrets_hidden(self, text: str) -> Iterator[None]:
        """Removes secrets from every error raised inside, and the values of variables from the
        problems of `text` and of the running spec. The caller of the API receives the error."""
        running = self._running.written.text
        try:
            with variables_hidden(text, os.environ), variables_hidden(running, os.environ):
                yield
        except Exception as error:
            self._redaction.scrub_error(error)
            raise
