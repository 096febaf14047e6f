"""The query's life: started from the plan, watched, stopped between batches, started again.

One thread, `run`, does everything to the query. Commands and Spark's reports arrive on other
threads; they only leave a note and wake it.
"""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job.checkpoint import Checkpoint
from job.control import Verb
from job.dataflow import kafka_dataflow
from job.durations import milliseconds
from job.errors import ConflictError, SetupError, StreamjoinError
from job.expressions import SIDES
from job.failures import failure_of
from job.fingerprint import fingerprint
from job.listener import listen
from job.plan import JoinPlan
from job.preflight import check_topics
from job.progress import BatchProgress, Failure, JobStatus, QueryState, Totals, batch_progress
from job.session import Jvm
from job.settings import JobSettings
from job.sink import start_query

_FIRST_RETRY_SECONDS = 1.0
# Beyond any setting of the longest pause; a day without Kafka must not overflow a float.
_DOUBLINGS_MAX = 20
_LOOK_SECONDS = 0.5

# What each state allows. A verb that changes nothing is allowed: commands may be repeated.
_ALLOWED: dict[QueryState, tuple[Verb, ...]] = {
    QueryState.STARTING: ("pause", "resume", "stop", "restart"),
    QueryState.RUNNING: ("pause", "resume", "stop", "restart"),
    QueryState.RESTARTING: ("pause", "resume", "stop", "restart"),
    QueryState.PAUSED: ("pause", "resume", "stop"),
    QueryState.STOPPED: ("stop", "resume"),
    QueryState.FAILED: ("restart", "stop"),
}
_DESIRED: dict[Verb, QueryState] = {
    "pause": QueryState.PAUSED,
    "resume": QueryState.RUNNING,
    "stop": QueryState.STOPPED,
    "restart": QueryState.RUNNING,
}

_log = structlog.get_logger()


class Engine:
    def __init__(self, plan: JoinPlan, settings: JobSettings) -> None:
        self._plan = plan
        self._settings = settings
        self._changed = threading.Condition()
        self._state = QueryState.STARTING
        self._state_since = datetime.now(UTC)
        self._desired: QueryState | None = None  # None: as the checkpoint says
        self._restart_wanted = False
        self._ending = False
        self._started_at = datetime.now(UTC)
        self._totals = Totals()
        self._run_id: str | None = None
        self._last_batch: BatchProgress | None = None
        self._last_progress_at: datetime | None = None
        self._last_failure: Failure | None = None
        self._retries = 0
        self._jvm: Jvm | None = None
        self._workers = ThreadPoolExecutor(thread_name_prefix="engine")

    def run(self) -> QueryState:
        """Keep the query in the desired state until `end` is called; the state it ended in."""
        try:
            while not self._ending:
                self._pursue()
        finally:
            self._close_jvm()
            self._workers.shutdown(wait=False)
        return self._state

    def end(self) -> None:
        """Finish the batch at work and return from `run`. May be called from a signal handler."""
        self._ending = True
        threading.Thread(target=self._wake, daemon=True).start()

    def command(self, verb: Verb, by: str) -> None:
        with self._changed:
            allowed = _ALLOWED[self._state]
            if verb not in allowed:
                raise ConflictError(
                    f"{verb} is not possible while the query is {self._state}; "
                    f"possible: {', '.join(allowed)}",
                    allowed=list(allowed),
                )
            _log.info("command", verb=verb, by=by, state=self._state.value)
            self._desired = _DESIRED[verb]
            self._restart_wanted = verb == "restart"
            self._changed.notify_all()

    def status(self) -> JobStatus:
        last = self._last_batch
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
            query_id=last.query_id if last else None,
            run_id=self._run_id,
            last_batch=last,
            last_progress_at=self._last_progress_at,
            last_failure=self._last_failure,
            totals=self._totals,
        )

    def batch(self, progress: str) -> None:
        try:
            batch = batch_progress(progress)
        except Exception:
            # A report that cannot be read must not end Spark's listener thread.
            _log.exception("unreadable_progress")
            return
        with self._changed:
            self._last_batch = batch
            self._last_progress_at = datetime.now(UTC)
            self._totals = self._totals.plus(batch)
            self._retries = 0

    def idle(self) -> None:
        with self._changed:
            self._last_progress_at = datetime.now(UTC)
            self._retries = 0

    def _pursue(self) -> None:
        """One step: whatever brings the query nearer to the desired state, or wait."""
        try:
            if self._desired in {QueryState.PAUSED, QueryState.STOPPED}:
                self._rest(self._desired)
            else:
                self._run_query()
        except SetupError:
            raise
        except Exception as error:
            self._fail(failure_of(error, self._plan.bootstrap_servers))

    def _run_query(self) -> None:
        """From start to end of one run of the query; raises what made it fail."""
        topics = self._workers.submit(check_topics, self._plan)
        spark = self._session()
        checkpoint = Checkpoint(spark, self._plan.checkpoint)
        if self._desired is None:
            self._desired = checkpoint.desired_state
            if self._desired is not QueryState.RUNNING:
                return
        plan = self._claimed(checkpoint)
        spark.conf.set("spark.sql.shuffle.partitions", plan.state_partitions)
        dataflow = kafka_dataflow(spark, plan)
        topics.result()
        checkpoint.desired_state = QueryState.RUNNING
        query = start_query(dataflow, plan, checkpoint.query_location)
        self._run_id = str(query.runId)
        self._become(QueryState.RUNNING)
        ended = self._workers.submit(query.awaitTermination)
        self._wait_for(lambda: ended.done() or not self._should_run())
        self._finish(query, ended)

    def _should_run(self) -> bool:
        return not (self._stop_wanted() or self._restart_wanted or self._ending)

    def _finish(self, query: StreamingQuery, ended: "Future[bool | None]") -> None:
        """End the query between two batches; raises its failure if it had already ended."""
        if ended.done():
            ended.result()
            return
        finish(query, self._settings.grace)
        if self._restart_wanted:
            self._restart_wanted = False
            self._totals = self._totals.with_restart()
            self._become(QueryState.RESTARTING)

    def _rest(self, state: QueryState) -> None:
        """Be paused or stopped until something else is wanted."""
        if self._state is not state:
            Checkpoint(self._session(), self._plan.checkpoint).desired_state = state
            if state is QueryState.STOPPED:
                self._close_jvm()
            self._become(state)
        self._wait_for(lambda: self._ending or self._desired is not state)
        if self._desired is QueryState.RUNNING and not self._ending:
            self._become(QueryState.STARTING)

    def _fail(self, error: StreamjoinError) -> None:
        if self._jvm is not None and not self._jvm.is_alive:
            self._close_jvm()
        self._totals = self._totals.with_failure(error.code)
        self._last_failure = Failure(
            code=error.code, message=str(error), retryable=error.retryable, at=datetime.now(UTC)
        )
        if error.retryable:
            self._retry_later(str(error))
        else:
            _log.error("query_failed", reason=str(error))
            self._become(QueryState.FAILED)
            self._restart_wanted = False
            self._wait_for(lambda: self._ending or self._restart_wanted or self._stop_wanted())
            self._start_over()

    def _retry_later(self, reason: str) -> None:
        longest = self._settings.restart_delay_max_seconds
        delay = min(longest, _FIRST_RETRY_SECONDS * 2**self._retries)
        self._retries = min(self._retries + 1, _DOUBLINGS_MAX)
        _log.warning("query_retried", reason=reason, in_seconds=delay)
        self._become(QueryState.RESTARTING)
        self._wait_for(lambda: not self._should_run(), timedelta(seconds=delay))
        self._start_over()

    def _start_over(self) -> None:
        self._restart_wanted = False
        if not (self._stop_wanted() or self._ending):
            self._totals = self._totals.with_restart()
            self._become(QueryState.RESTARTING)

    def _stop_wanted(self) -> bool:
        return self._desired in {QueryState.STOPPED, QueryState.PAUSED}

    def _session(self) -> SparkSession:
        """The JVM and its session, kept while the query is paused."""
        if self._jvm is None:
            jvm = Jvm(self._settings, self._plan.spark_conf)
            try:
                listen(jvm.session(self._settings, self._plan.spark_conf), self)
            except BaseException:
                jvm.close()
                raise
            self._jvm = jvm
        return self._jvm.session(self._settings, self._plan.spark_conf)

    def _close_jvm(self) -> None:
        if self._jvm is not None:
            self._jvm.close()
            self._jvm = None

    def _claimed(self, checkpoint: Checkpoint) -> JoinPlan:
        """The plan with the checkpoint's number of state partitions, its settings now frozen."""
        frozen, plan = checkpoint.fingerprint, self._plan
        if frozen is not None and self._settings.state_partitions is None:
            plan = replace(plan, state_partitions=int(frozen["state partitions"]))
        checkpoint.claim(frozen, fingerprint(plan))
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

    def _wait_for(self, condition: Callable[[], bool], at_most: timedelta | None = None) -> None:
        deadline = None if at_most is None else time.monotonic() + at_most.total_seconds()
        with self._changed:
            while not condition() and (deadline is None or time.monotonic() < deadline):
                self._changed.wait(_LOOK_SECONDS)


def finish(query: StreamingQuery, grace: timedelta) -> None:
    """Let the batch at work end, then end the query; after `grace` it is interrupted.

    stop() alone would interrupt the batch, and a batch cut short after it has written is written
    again by the next start. Spark has no call for "after this batch", but MicroBatchExecution asks
    whether its state is active in two places: before each batch, and before a planned batch gets
    its first task. So the state is set first, and a batch runs to its end or writes nothing.
    """
    execution = query._jsq.streamingQuery()
    terminated = (
        execution.getClass()
        .getClassLoader()
        .loadClass("org.apache.spark.sql.execution.streaming.runtime.TERMINATED$")
        .getField("MODULE$")
        .get(None)
    )
    execution.state().set(terminated)
    if not query.awaitTermination(math.ceil(grace.total_seconds())):
        _log.warning("batch_interrupted", after_seconds=grace.total_seconds())
    query.stop()
