"""Life cycle of the query: start, pause between batches, stop, retry, restart, reset.

Only the thread of `run` starts, pauses and stops the query. Commands and Spark's progress arrive on
other threads, which record them and wake this thread.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import structlog

from job.change.query import Successor
from job.change.request import ChangeRequest
from job.change.sent_spec import PlannedSpec
from job.change.spec_file import SpecFile
from job.checkpoint.frozen import frozen_settings
from job.checkpoint.state_reader import StateReader
from job.control.change_control import ChangeControl
from job.control.command_log import CommandLog
from job.control.reset import Reset
from job.control.state_lookup import state_reader
from job.control.state_machine import StateMachine
from job.delivery.sink import RunningQuery
from job.errors import CheckpointInUseError, ConflictError, SetupError, StreamjoinError
from job.kafka.security import KafkaAccess, kafka_access
from job.kafka.topic_ids import TopicIdentity
from job.lineage.reports import Outcome, RunReports
from job.plan.plan import JoinPlan
from job.protocol import calls
from job.protocol.status import JobStatus, QueryState
from job.query.failed_run import failure_of_run
from job.query.idleness import IdleSides
from job.query.preparation import Preparation
from job.query.retries import retry_delay
from job.query.runtime import Resources
from job.query.start import QueryStarter
from job.query.stats import QueryStats
from job.redaction import Redaction
from job.settings import JobSettings
from job.spark.between_batches import pause_between_batches, stop_at_once
from job.spark.session import Jvm
from job.spec.durations import milliseconds

_log = structlog.get_logger()


class QueryRunner:
    def __init__(
        self,
        plan: JoinPlan,
        settings: JobSettings,
        redaction: Redaction,
        stats: QueryStats,
        idle_sides: IdleSides,
        identity: TopicIdentity,
        jvm: Jvm,
        lineage: RunReports,
        change: ChangeRequest,
        spec_file: SpecFile,
        commands: CommandLog,
    ) -> None:
        """Each secret is added to `redaction` before its use. `jvm`: the first, still starting."""
        self._plan = plan
        self._settings = settings
        self._redaction = redaction
        self._stats = stats
        self._idle_sides = idle_sides
        self._identity = identity
        self._lineage = lineage
        self._change = change
        self._spec_file = spec_file
        self._spec_of_restart: PlannedSpec | None = None
        self._successor: PlannedSpec | None = None
        self.failure: StreamjoinError | None = None  # that has ended the job
        self._kept_jvm: Jvm | None = None
        self._started_at = datetime.now(UTC)
        self._query_id: str | None = None
        self._run_id: str | None = None
        self._machine = StateMachine(commands)
        self._resources = Resources(
            *(plan, settings, redaction, stats, jvm, self._machine.wake, commands.store)
        )
        self._preparation = Preparation(plan, settings, stats, identity)
        self._starter = QueryStarter(stats, self._resources, new_query=settings.new_query)
        self._reset = Reset(plan, self._resources, redaction, self._forget_checkpoint)
        self._workers = ThreadPoolExecutor(thread_name_prefix="runner")
        self.change_control = ChangeControl(change, self._machine, self._resources, self.status)

    def run(self) -> QueryState:
        """Keep the query in the desired state until `end` is called, the query has a successor, or
        its failure ends the job. Returns its last state."""
        try:
            while not (self._machine.job_is_ending or self._successor or self.failure):
                self._approach_desired_state()
            if self._successor is not None:
                self._kept_jvm = self._resources.hand_over(self._successor.plan)
        finally:
            self._resources.release()
            self._workers.shutdown(wait=False)
        if self._machine.job_is_ending:
            _log.info("job_stopped", last_state=self._machine.state.value)
        return self._machine.state

    @property
    def successor(self) -> Successor | None:
        """The query that continues this one after a change. None: there is none, or the job
        ends."""
        if self._successor is None or self._machine.job_is_ending:
            return None
        return Successor(self._successor, self._kept_jvm)

    def end(self) -> None:
        """Finish the current batch and return from `run`. May be called from a signal handler."""
        self._machine.end_job()

    def command(self, command: calls.Command) -> None:
        with self._machine.accept(command):
            if command.query_id not in {None, self._query_id}:
                raise ConflictError(
                    f"the job does not run query {command.query_id}: it runs another query, or has "
                    "not read its checkpoint yet. Check OLD_SPEC, then repeat the command",
                    allowed=[],
                )
            self._change.before_command(command)
            if isinstance(command, calls.Reset):
                self._reset.request(command)
            if isinstance(command, calls.Change | calls.Undo):
                self._machine.check_nothing_pending(command.call)
                self._change.request(command)
            self._spec_of_restart = self._spec_file.take_for(command)

    def status(self) -> JobStatus:
        last, plan = self._stats.last_batch, self._plan
        delays = {side: plan.side(side).watermark_delay for side in plan.streams}
        return JobStatus(
            name=plan.name,
            join_type=plan.join_type.value,
            delivery=plan.output.delivery.value,
            engine=plan.engine,
            state=self._machine.state,
            started_at=self._started_at,
            state_since=self._machine.since,
            watermark_delay_ms={side: milliseconds(delay) for side, delay in delays.items()},
            topics=self._stats.several_topics,
            table=plan.table_side,
            phase=self._starter.phase,
            table_records_left=self._starter.table_records_left,
            idle=dict(self._idle_sides.idle),
            query_id=last.query_id if last else None,
            run_id=self._run_id,
            last_batch=last,
            live_watermark_ms=self._stats.live_watermark_ms,
            last_progress_at=self._stats.last_progress_at,
            last_failure=self._stats.last_failure,
            commands=self._machine.commands.last,
            totals=self._stats.totals,
            last_reset=self._reset.report,
            last_change=self._change.report,
            change=self._stats.change,
            filter_change=self._preparation.filter_change,
            lineage_events=self._lineage.counts,
        )

    @property
    def frozen(self) -> Mapping[str, str] | None:
        """Settings frozen in the checkpoint. None: no checkpoint, or it is not read yet."""
        return self._preparation.frozen

    def state_reader(self) -> tuple[StateReader, int]:
        """A reader and the last batch that ended. Raises ConflictError if there is no state."""
        plan = self._preparation.plan_of_run(self._stats.topics)
        return state_reader(plan, self._resources, self._machine.state)

    def _approach_desired_state(self) -> None:
        """Run the query until it ends, or wait while it should be paused or stopped."""
        try:
            if self._change.is_requested:
                self._make_change()
            elif self._spec_of_restart is not None and not self._machine.stop_requested:
                self._resources.store_desired_state(QueryState.RUNNING)
                self._end_with(self._spec_of_restart)
            elif self._machine.desired in {QueryState.PAUSED, QueryState.STOPPED}:
                self._stay_in(self._machine.desired)
            else:
                self._run_query()
        except (SetupError, CheckpointInUseError):
            self._lineage.end(Outcome.ABORT)
            raise
        except Exception as error:
            failure = failure_of_run(
                *(error, self._plan.bootstrap_servers, self._stats.next_batch_id),
                session_is_lost=self._resources.session_is_lost,
            )
            self._fail(failure)

    def _run_query(self) -> None:
        """One run of the query, from start to end. Raises its failure."""
        plan = self._plan
        access = kafka_access(plan.bootstrap_servers, plan.security, plan.schema_registry)
        self._redaction.add(access.secrets)
        topics = self._workers.submit(self._preparation.check_topics, access)
        # A failed check is raised in `prepare`: after a change the old topics may be deleted.
        if plan.real_time is not None and topics.exception() is None:
            self._resources.provide_slots(topics.result().plan_with_partitions(plan).interval_tasks)
        spark = self._resources.session()
        checkpoint = self._resources.checkpoint()
        if (successor := self._change.successor_of(checkpoint)) is not None:
            self._end_with(successor)
            return
        self._change.read_report(checkpoint)
        self._query_id = checkpoint.query_id
        self._preparation.frozen = frozen_settings(checkpoint, plan)
        if self._machine.desired is None:
            self._machine.desired = self._preparation.desired_state(checkpoint)
            if self._machine.desired is not QueryState.RUNNING:
                return
        self._resources.store_desired_state(QueryState.RUNNING)
        plan, limits = self._preparation.prepare(spark, checkpoint, access, topics)
        if self.change_control.reload_table(checkpoint, topics.result().kafka):
            return
        if plan.real_time is not None and self._resources.provide_slots(plan.interval_tasks):
            return  # The checkpoint has more state partitions than expected: run again.
        start = self._starter.start(spark, plan, topics.result().kafka, limits, checkpoint)
        del topics  # The admin client of the start ends before the query runs.
        with start as running:
            try:
                self._follow(running, access)
            finally:
                running.end(self._grace)
        self._resources.check_lease()
        if self._identity.failure is not None:
            raise self._identity.failure
        self._lineage.end(Outcome.COMPLETE)

    def _follow(self, running: RunningQuery, access: KafkaAccess) -> None:
        """Pause and resume the running query until it ends or should stop."""
        self._query_id, self._run_id = str(running.query.id), str(running.query.runId)
        self._lineage.start(self._run_id, self._preparation.plan_of_run(self._stats.topics))
        self._machine.become(QueryState.RUNNING)
        ended = self._workers.submit(running.await_end)
        ended.add_done_callback(lambda _: self._machine.wake())
        continues = True
        while continues:
            with self._idle_sides.watch(self._starter.raise_watermark):
                self._await_end(ended)
            should_pause = self._is_paused() and not ended.done()
            continues = should_pause and self._pause(running, access, ended)
        self._finish(running, ended)

    def _await_end(self, ended: "Future[None]") -> None:
        """Return once the run has ended, or must end. Prepares a change that is requested."""

        def is_over() -> bool:
            return ended.done() or not self._should_run() or self._identity.failure is not None

        while not is_over():
            self._machine.wait_until(lambda: is_over() or self._change.is_waiting)
            if self._change.is_waiting:
                self.change_control.prepare(self._starter.phase, is_over)

    def _pause(self, running: RunningQuery, access: KafkaAccess, ended: "Future[None]") -> bool:
        """Pause the running query until another state is desired; returns whether it continues."""
        spark = self._resources.session()
        self._resources.store_desired_state(QueryState.PAUSED)  # also if the batch is interrupted
        # The next start checks how long a table was not read.
        if running.has_intervals or self._plan.table_side is not None:
            return False
        with pause_between_batches(spark, running.query, self._settings.grace) as pause:
            if pause is None:
                return False
            self._machine.become(QueryState.PAUSED)
            self._machine.wait_until(lambda: ended.done() or not self._is_paused())
            if (
                ended.done()
                or self._machine.desired is not QueryState.RUNNING
                or self._must_end()
                or not self._identity.is_unchanged(access)
            ):
                pause.prevent_next_batch()
                return False
            self._resources.store_desired_state(QueryState.RUNNING)
            self._stats.on_resume(paused_at=self._machine.since)
            self._machine.become(QueryState.RUNNING)
        return True

    def _is_paused(self) -> bool:
        return self._machine.desired is QueryState.PAUSED and not self._must_end()

    def _must_end(self) -> bool:
        machine, resources = self._machine, self._resources
        return machine.job_is_ending or resources.lease_is_lost or self._starter.must_end

    def _should_run(self) -> bool:
        machine = self._machine
        return not (machine.stop_requested or machine.restart_requested or self._must_end())

    def _finish(self, running: RunningQuery, ended: "Future[None]") -> None:
        """End the query between two batches. Raises its failure if it has already ended."""
        if ended.done():
            ended.result()
            return
        is_stopped = self._machine.desired is QueryState.STOPPED
        if is_stopped and not (self._change.is_requested or self._resources.lease_is_lost):
            self._resources.store_desired_state(QueryState.STOPPED)
        with running.raising_failure():
            if running.can_be_interrupted and not self._machine.completes_interval:
                stop_at_once(running.query)
            else:
                running.stop(self._grace)
        if self._machine.restart_requested:
            self._machine.restart_requested = False
            self._count_restart()

    @property
    def _grace(self) -> timedelta:
        grace, real_time = self._settings.grace, self._plan.real_time
        completes = self._machine.completes_interval
        return grace + real_time.checkpoint_interval if real_time and completes else grace

    def _stay_in(self, state: QueryState) -> None:
        """Stay paused or stopped, without a running query, until another state is desired. Raises
        QueryError if the JVM ends: without it the lease is not renewed."""
        self._starter.forget_phase()
        machine = self._machine
        if machine.state is not state:
            self._resources.store_desired_state(state)
            if state is QueryState.STOPPED:
                self._resources.release()
            machine.become(state)
        machine.wait_until(
            lambda: (
                self._must_end()
                or machine.desired is not state
                or self._reset.is_requested
                or self._change.is_requested
                or self._resources.jvm_has_ended
            )
        )
        self._resources.check_lease()
        if not machine.job_is_ending:
            self._resources.check_jvm()
        if self._reset.is_requested:
            self._reset.execute()
        if machine.desired is QueryState.RUNNING and not machine.job_is_ending:
            machine.become(QueryState.STARTING)

    def _make_change(self) -> None:
        """End with the query that continues, or leave the query as it was if the change fails."""
        self._starter.forget_phase()
        self._machine.completes_interval = False
        self._machine.become(QueryState.RESTARTING)
        # Commands are refused during a change.
        self._machine.desired = self._machine.desired_before
        self._resources.cancel_lookups()
        successor = self._change.make(self._resources)
        self._resources.check_lease()
        if successor is not None:
            self._end_with(successor)

    def _end_with(self, successor: PlannedSpec) -> None:
        self._successor = successor
        old, new = self._plan.checkpoint, successor.plan.checkpoint
        _log.info("spec_changed", old_checkpoint=old, new_checkpoint=new)

    def _forget_checkpoint(self) -> None:
        self._stats.on_reset()
        self._query_id = None
        self._preparation.frozen = self._preparation.filter_change = None

    def _fail(self, error: StreamjoinError) -> None:
        """Wait for the next retry. A permanent error ends the job, or waits for a command."""
        self._starter.forget_phase()
        self._redaction.scrub_error(error)  # Spark's messages contain the options of a source.
        self._spec_file.name_in(error)
        self._change.query_failed(error, self._resources)
        self._resources.release_if_dead(is_retried=error.retryable)
        self._stats.on_failure(error)
        self._lineage.end(Outcome.FAIL, str(error))
        if error.retryable:
            delay = retry_delay(self._stats.count_retry(), self._settings.restart_delay_max_seconds)
            _log.warning("query_retried", reason=str(error), in_seconds=delay.total_seconds())
            self._machine.become(QueryState.RESTARTING)
            self._machine.wait_until(lambda: not self._should_run(), delay)
        else:
            _log.error("query_failed", reason=str(error))
            self._machine.become(QueryState.FAILED)
            if self._should_run() and not self._settings.keep_running:
                self.failure = error
                return
            # A restart that was accepted during the run that has failed follows at once.
            self._machine.wait_until(lambda: not self._should_run())
            self._resources.check_lease()
        self._machine.restart_requested = False
        if not (self._machine.stop_requested or self._machine.job_is_ending):
            self._count_restart()

    def _count_restart(self) -> None:
        self._stats.on_restart()
        self._machine.become(QueryState.RESTARTING)
