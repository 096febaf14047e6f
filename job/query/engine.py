"""The query's life: started from the plan, watched, stopped between batches, started again.

One thread, `run`, does everything to the query. Commands and Spark's reports arrive on other
threads; they only leave a note and wake it.
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.state_reader import StateReader
from job.dataflow.dataflow import kafka_dataflow
from job.delivery.sink import RunningQuery, start_query
from job.errors import (
    CheckpointInUseError,
    ConflictError,
    QueryError,
    SetupError,
    StreamjoinError,
)
from job.formats.pinning import check_schema_evolution
from job.formats.registry import RegistryAccess
from job.join_spec.durations import milliseconds
from job.join_spec.expressions import SIDES
from job.join_spec.start_positions import StartPositions, with_all_partitions
from job.kafka.preflight import check_topics
from job.kafka.security import KafkaAccess, kafka_access
from job.kafka.topic_ids import TopicIdentity
from job.plan.fingerprint import fingerprint
from job.plan.plan import JoinPlan
from job.protocol.control import Verb
from job.protocol.progress import JobStatus, QueryState
from job.protocol.reports import ResetReport
from job.query.cluster import (
    check_executors,
    check_is_shared,
    check_partitions_are_chosen,
    wait_for_executors,
)
from job.query.event_times import EventTimes
from job.query.idleness import IdleSides
from job.query.retries import retry_delay
from job.query.runtime import Resources
from job.query.stats import QueryStats
from job.query.topics import check_topics_of
from job.query.verbs import ALLOWED, DESIRED, check_allowed
from job.redaction import Redaction
from job.settings import JobSettings
from job.spark.between_batches import pause_between_batches, stop_gracefully
from job.spark.failures import failure_of
from job.spark.session import Jvm
from job.spark.watermark import raise_watermark

_LOOK_SECONDS = 0.5

_log = structlog.get_logger()


class Engine:
    def __init__(
        self,
        plan: JoinPlan,
        settings: JobSettings,
        redaction: Redaction,
        account: QueryStats,
        idle_sides: IdleSides,
        identity: TopicIdentity,
        jvm: Jvm,
    ) -> None:
        """`redaction` learns each secret before it is used; `account` is told what happens; `jvm`
        is the first one, still starting."""
        self._plan = plan
        self._settings = settings
        self._redaction = redaction
        self._changed = threading.Condition()
        self._state = QueryState.STARTING
        self._state_since = datetime.now(UTC)
        self._desired: QueryState | None = None  # None: as the checkpoint says
        self._restart_wanted = False
        self._ending = False
        self._started_at = datetime.now(UTC)
        self._account = account
        self._idle_sides = idle_sides
        self._identity = identity
        self._run_id: str | None = None
        self._reset: ResetReport | None = None
        self.frozen: Mapping[str, str] | None = None
        """What the checkpoint has frozen; None as long as it has not been looked at, or is new."""
        self._resources = Resources(plan, settings, redaction, account, jvm, self._wake)
        self._workers = ThreadPoolExecutor(thread_name_prefix="engine")

    def run(self) -> QueryState:
        """Keep the query in the desired state until `end` is called; the state it ended in."""
        try:
            while not self._ending:
                self._pursue()
        finally:
            self._resources.release()
            self._workers.shutdown(wait=False)
        _log.info("job_stopped", state=self._state.value)
        return self._state

    def end(self) -> None:
        """Finish the batch at work and return from `run`. May be called from a signal handler."""
        self._ending = True
        threading.Thread(target=self._wake, daemon=True).start()

    def command(self, verb: Verb, by: str, starts: StartPositions | None = None) -> None:
        with self._changed:
            check_allowed(verb, self._state)
            if verb == "reset" and self._reset_wanted():
                raise ConflictError(
                    "another reset is being carried out: ask again when it is done",
                    allowed=["stop", "resume"],
                )
            _log.info("command", verb=verb, by=by, state=self._state.value)
            self._desired = DESIRED[verb]
            self._restart_wanted = verb == "restart"
            if starts is not None:
                self._reset = ResetReport(by=by, asked_at=datetime.now(UTC), starts=starts)
            self._changed.notify_all()

    def status(self) -> JobStatus:
        last = self._account.last_batch
        return JobStatus(
            name=self._plan.name,
            join_type=self._plan.join_type.value,
            delivery=self._plan.output.delivery.value,
            state=self._state,
            started_at=self._started_at,
            state_since=self._state_since,
            watermark_delay_ms={
                side: milliseconds(self._plan.side(side).watermark_delay) for side in SIDES
            },
            idle=dict(self._idle_sides.idle),
            query_id=last.query_id if last else None,
            run_id=self._run_id,
            last_batch=last,
            last_progress_at=self._account.last_progress_at,
            last_failure=self._account.last_failure,
            totals=self._account.totals,
            last_reset=self._reset,
        )

    def _pursue(self) -> None:
        """One step: whatever brings the query nearer to the desired state, or wait."""
        try:
            if self._desired in {QueryState.PAUSED, QueryState.STOPPED}:
                self._rest(self._desired)
            else:
                self._run_query()
        except (SetupError, CheckpointInUseError):
            raise
        except Exception as error:
            failure = failure_of(error, self._plan.bootstrap_servers)
            if self._resources.session_is_lost:  # whatever failed then says something else
                failure = QueryError(
                    f"Spark has ended the application, or its cluster has: {failure}",
                    retryable=True,
                )
            self._fail(failure)

    def _run_query(self) -> None:
        """From start to end of one run of the query; raises what made it fail."""
        plan = self._plan
        access = kafka_access(plan.bootstrap_servers, plan.security, plan.schema_registry)
        self._redaction.learn(access.secrets)
        topics = self._workers.submit(check_topics, self._plan, access)
        spark = self._resources.session()
        checkpoint = self._resources.checkpoint()
        self.frozen = checkpoint.fingerprint  # told of a start that is refused, too
        if self._desired is None:
            self._desired = checkpoint.desired_state
            if self._desired is not QueryState.RUNNING:
                return
        checkpoint.desired_state = QueryState.RUNNING
        if self._settings.is_on_cluster:
            check_is_shared(checkpoint.folder, self._settings)
        plan = self._claimed(checkpoint, access.registry)
        if self._settings.is_on_cluster:
            wait_for_executors(spark, plan.state_partitions)
            check_executors(spark, checkpoint.folder)
        spark.conf.set("spark.sql.shuffle.partitions", plan.state_partitions)
        if (starts := checkpoint.start_positions) is not None:
            plan = plan.starting_at(starts)
        self._account.begins_at(checkpoint.last_batch_id, checkpoint.offsets)
        plan = plan.reading(topics.result())
        rows = kafka_dataflow(spark, plan, access)
        check_topics_of(checkpoint, plan, access, self._identity)
        with closing(EventTimes(spark, plan, self._account, checkpoint, self._resources)) as times:
            running = start_query(
                rows,
                plan,
                access,
                checkpoint,
                self._account,
                times.batch_ended,
                new_query=self._settings.new_query,
            )
            times.follow(running)
            self._follow(running, checkpoint, access)
        self._resources.check_lease()
        if self._identity.failure is not None:
            raise self._identity.failure

    def _follow(self, running: RunningQuery, checkpoint: Checkpoint, access: KafkaAccess) -> None:
        self._run_id = str(running.query.runId)
        self._become(QueryState.RUNNING)
        ended = self._workers.submit(running.await_end)
        goes_on = True
        while goes_on:
            with self._idle_sides.followed(partial(raise_watermark, running.query)):
                self._wait_for(
                    lambda: ended.done() or not self._should_run() or self._identity.failure
                )
            goes_on = self._pause_wanted(ended) and self._hold(running, checkpoint, access, ended)
        self._finish(running, checkpoint, ended)

    def _hold(
        self,
        running: RunningQuery,
        checkpoint: Checkpoint,
        access: KafkaAccess,
        ended: "Future[None]",
    ) -> bool:
        """Be paused, the query at hand, until something else is wanted; then whether to go on."""
        spark = self._resources.session()
        checkpoint.desired_state = QueryState.PAUSED  # and stays it if the batch at work is cut
        with pause_between_batches(spark, running.query, self._settings.grace) as pause:
            if pause is None:
                return False
            self._become(QueryState.PAUSED)
            self._wait_for(
                lambda: ended.done() or self._desired is not QueryState.PAUSED or self._must_end()
            )
            if (
                ended.done()
                or self._desired is not QueryState.RUNNING
                or self._must_end()
                or not self._identity.is_unchanged(access)
            ):
                pause.prevent_next_batch()
                return False
            checkpoint.desired_state = QueryState.RUNNING
            self._become(QueryState.RUNNING)
        return True

    def _pause_wanted(self, ended: "Future[None]") -> bool:
        return self._desired is QueryState.PAUSED and not (ended.done() or self._must_end())

    def _must_end(self) -> bool:
        return self._ending or self._resources.lease_is_lost

    def _should_run(self) -> bool:
        return not (self._stop_wanted() or self._restart_wanted or self._must_end())

    def _finish(self, running: RunningQuery, checkpoint: Checkpoint, ended: "Future[None]") -> None:
        """End the query between two batches; raises its failure if it had already ended."""
        if ended.done():
            ended.result()
            return
        if self._desired is QueryState.STOPPED and not self._resources.lease_is_lost:
            checkpoint.desired_state = QueryState.STOPPED
        with running.raising_failure():
            stop_gracefully(running.query, self._settings.grace)
        if self._restart_wanted:
            self._restart_wanted = False
            self._account.restarted()
            self._become(QueryState.RESTARTING)

    def _rest(self, state: QueryState) -> None:
        """Be paused or stopped until something else is wanted."""
        if self._state is not state:
            self._resources.checkpoint().desired_state = state
            if state is QueryState.STOPPED:
                self._resources.release()
            self._become(state)
        self._wait_for(
            lambda: (
                self._ending
                or self._desired is not state
                or self._reset_wanted()
                or self._resources.lease_is_lost
            )
        )
        self._resources.check_lease()
        if self._reset_wanted():
            self._carry_out_reset()
        if self._desired is QueryState.RUNNING and not self._ending:
            self._become(QueryState.STARTING)

    def _reset_wanted(self) -> bool:
        return self._reset is not None and self._reset.done_at is None

    def _carry_out_reset(self) -> None:
        """Put the checkpoint aside; whatever comes of it is told in the status."""
        assert self._reset is not None
        now, outcome = datetime.now(UTC), {}
        try:
            checkpoint = self._resources.checkpoint()
            starts = with_all_partitions(self._reset.starts, checkpoint.offsets)
            outcome["kept_aside"] = checkpoint.reset(starts, now)
            self._account.begins_anew()
            self.frozen = None
        except Exception as error:
            failure = failure_of(error, self._plan.bootstrap_servers)
            self._redaction.scrub_error(failure)
            outcome["error"] = str(failure)
        finally:
            self._resources.release()
        self._reset = self._reset.model_copy(update={**outcome, "done_at": datetime.now(UTC)})
        _log.info("reset", **self._reset.model_dump(mode="json"))

    def _fail(self, error: StreamjoinError) -> None:
        # Spark tells a source's options in what it says of a failure.
        self._redaction.scrub_error(error)
        self._resources.release_if_dead()
        self._account.failed(error)
        if error.retryable:
            self._retry_later(str(error))
        else:
            _log.error("query_failed", reason=str(error))
            self._become(QueryState.FAILED)
            self._restart_wanted = False
            self._wait_for(lambda: not self._should_run())
            self._resources.check_lease()
            self._start_over()

    def _retry_later(self, reason: str) -> None:
        delay = retry_delay(self._account.retry(), self._settings.restart_delay_max_seconds)
        _log.warning("query_retried", reason=reason, in_seconds=delay.total_seconds())
        self._become(QueryState.RESTARTING)
        self._wait_for(lambda: not self._should_run(), delay)
        self._start_over()

    def _start_over(self) -> None:
        self._restart_wanted = False
        if not (self._stop_wanted() or self._ending):
            self._account.restarted()
            self._become(QueryState.RESTARTING)

    def _stop_wanted(self) -> bool:
        return self._desired in {QueryState.STOPPED, QueryState.PAUSED}

    def state_reader(self) -> tuple[StateReader, int]:
        """A reader and the last batch that ended; ConflictError where Spark is not up."""
        with self._changed:
            state = self._state
        if not self._resources.has_jvm or state not in {QueryState.RUNNING, QueryState.PAUSED}:
            raise ConflictError(
                f"state can be looked up while the query is RUNNING or PAUSED, and it is {state}; "
                "`streamjoin state` reads the checkpoint without it",
                allowed=list(ALLOWED[state]),
            )
        spark = self._resources.session()
        checkpoint = Checkpoint(spark, self._plan.checkpoint)
        batch_id = checkpoint.last_batch_id
        if batch_id is None:
            raise ConflictError("no batch has ended yet: there is no state", allowed=[])
        return StateReader(spark, self._plan, checkpoint.query_location), batch_id

    def _claimed(self, checkpoint: Checkpoint, registry: RegistryAccess | None) -> JoinPlan:
        """The plan with the checkpoint's number of state partitions, its settings now frozen."""
        frozen, plan = self.frozen, self._plan
        if frozen is None and self._settings.is_on_cluster:
            check_partitions_are_chosen(self._settings)
        if frozen is not None and self._settings.state_partitions is None:
            plan = replace(plan, state_partitions=int(frozen["state_partitions"]))
        if frozen is not None and registry is not None:
            frozen = check_schema_evolution(frozen, plan.readers, registry)
        checkpoint.freeze(frozen, fingerprint(plan))
        self.frozen = fingerprint(plan)
        return plan

    def _become(self, state: QueryState) -> None:
        with self._changed:
            if state is not self._state:
                _log.info("state", state=state.value, before=self._state.value)
                self._state_since = datetime.now(UTC)
            self._state = state
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _wait_for(self, condition: Callable[[], object], at_most: timedelta | None = None) -> None:
        deadline = None if at_most is None else time.monotonic() + at_most.total_seconds()
        with self._changed:
            while not condition() and (deadline is None or time.monotonic() < deadline):
                self._changed.wait(_LOOK_SECONDS)
