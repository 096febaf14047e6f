"""Resources of a query: a JVM with its Spark session, and the lease of the checkpoint."""

from collections.abc import Callable
from dataclasses import dataclass

import structlog
from pyspark.sql import SparkSession

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.documents import Documents
from job.checkpoint.lease import Lease
from job.checkpoint.reset import complete_reset
from job.errors import CheckpointInUseError, SetupError
from job.kafka.security import KafkaAccess
from job.plan.plan import JoinPlan
from job.plan.real_time import LOOKUP_SLOTS, SPARE_SLOTS
from job.plan.tuning import can_share_jvm
from job.protocol.status import QueryState
from job.query.stats import QueryStats
from job.redaction import Redaction
from job.settings import JobSettings
from job.spark.failures import failure_of, jvm_is_gone
from job.spark.listener import Reports, listen
from job.spark.session import Jvm
from job.waiting import wait_until

REPORT_SECONDS = 5.0
PAUSE_SECONDS = 0.01

_log = structlog.get_logger()


class Resources:
    """Acquired at first use, kept while the query is paused, released with `release`."""

    def __init__(
        self,
        plan: JoinPlan,
        settings: JobSettings,
        redaction: Redaction,
        stats: QueryStats,
        jvm: Jvm,
        lease_lost: Callable[[], None],
        store_commands: Callable[[Documents], None],
    ) -> None:
        """`jvm`: the first JVM, which may still be starting. `lease_lost`: called on that event.
        `store_commands`: called with the folder of the checkpoint."""
        self._plan = plan
        self._settings = settings
        self._redaction = redaction
        self._stats = stats
        self._lease_lost = lease_lost
        self._store_commands = store_commands
        self._starting: Jvm | None = jvm
        self._jvm: Jvm | None = None
        self._lease: Lease | None = None
        self._slots = 0
        self._reports = Reports()

    @property
    def has_jvm(self) -> bool:
        return self._jvm is not None

    def session(self) -> SparkSession:
        """The Spark session; its progress is reported to the statistics."""
        if self._jvm is None:
            jvm = self._starting or self._new_jvm()
            self._starting = None
            try:
                session = jvm.session(self._settings, self._plan.spark_conf)
                self._reports = listen(session, self._stats)
            except BaseException:
                jvm.close()
                raise
            self._jvm = jvm
        return self._jvm.session(self._settings, self._plan.spark_conf)

    def await_reports(self, run_id: str) -> None:
        """Wait until Spark has reported each batch of a run that has ended.

        The counts of a batch are read when it is reported, so the counters of the run must last
        until then.
        """

        def is_over() -> bool:
            return self._reports.are_complete(run_id) or self._jvm_is_dead

        if not wait_until(is_over, REPORT_SECONDS, PAUSE_SECONDS):
            _log.warning("batches_not_reported", run_id=run_id, after_seconds=REPORT_SECONDS)

    def warm_up_session(self, successor: JoinPlan) -> SparkSession | None:
        """A session for the query of `successor`, next to the running query. None: that query will
        not run in the same JVM, or the running one takes all task slots."""
        if (
            self._jvm is None
            or self._settings.is_on_cluster
            or self._plan.real_time is not None
            or not can_share_jvm(self._plan.spark_conf, successor.spark_conf)
        ):
            return None
        return self._jvm.another_session(successor.spark_conf)

    def provide_slots(self, tasks: int) -> bool:
        """With a local master, provide a slot for each task of an interval, one for lookups, and
        some for partitions that are added later. Returns whether everything was released because
        the session has too few."""
        if self._settings.is_on_cluster or tasks + LOOKUP_SLOTS <= self._slots:
            return False
        has_too_few = self._jvm is not None
        if has_too_few:
            self.release()
        self._slots = tasks + LOOKUP_SLOTS + SPARE_SLOTS
        master = f"local[{self._slots}]"
        self._settings = self._settings.model_copy(update={"spark_master": master})
        return has_too_few

    def checkpoint(self) -> Checkpoint:
        """The checkpoint, locked by the lease, without a pending reset.

        Raises CheckpointInUseError if another job uses it or has taken it over.
        """
        checkpoint = Checkpoint(self.session(), self._plan.checkpoint)
        if self._lease is None:
            lease = Lease(checkpoint.folder, self._lease_lost)
            lease.take()
            try:
                complete_reset(checkpoint)
            except BaseException:
                lease.release()
                raise
            self._lease = lease
        self.check_lease()
        return checkpoint

    def store_desired_state(self, state: QueryState) -> None:
        """Store the state, and the last commands, for the next start of the job. If this fails, the
        log has a warning: commands must be possible with a full disk, too.

        Raises CheckpointInUseError as `checkpoint`, SetupError, and any error of a dead JVM.
        """
        try:
            checkpoint = self.checkpoint()
            checkpoint.desired_state = state
            self._store_commands(checkpoint.folder)
        except (CheckpointInUseError, SetupError):
            raise
        except Exception as error:
            if self._jvm_is_dead:
                raise  # the query needs another JVM
            failure = failure_of(error, self._plan.bootstrap_servers)
            self._redaction.scrub_error(failure)
            _log.warning("desired_state_not_stored", state=state.value, reason=str(failure))

    @property
    def lease_is_lost(self) -> bool:
        return self._lease is not None and self._lease.loss is not None

    def check_lease(self) -> None:
        """Raises CheckpointInUseError if the lease was lost."""
        if self._lease is not None and self._lease.loss is not None:
            raise self._lease.loss

    @property
    def session_is_lost(self) -> bool:
        return self._jvm is not None and self._jvm.has_lost_its_session

    @property
    def jvm_has_ended(self) -> bool:
        """Asks the kernel, and not the JVM: one that hangs gives no answer. False if there is no
        JVM."""
        return self._jvm is not None and not self._jvm.is_alive

    def check_jvm(self) -> None:
        """Raises QueryError if the JVM has ended."""
        if self.jvm_has_ended:
            raise jvm_is_gone()

    @property
    def _jvm_is_dead(self) -> bool:
        return self.jvm_has_ended or self.session_is_lost

    def release_if_dead(self, *, is_retried: bool) -> None:
        """`is_retried`: the query starts again after a delay, in which the next JVM starts."""
        if self._jvm_is_dead:
            self.release()
            if is_retried:
                self._starting = self._new_jvm()

    def cancel_lookups(self) -> None:
        """Cancel the state lookups, which take cores. To be called when the query has ended."""
        if self._jvm is not None:
            self._jvm.cancel_jobs()

    def hand_over(self, successor: JoinPlan) -> Jvm | None:
        """Release everything but the JVM, whose classes are loaded and compiled. None: the query of
        `successor` needs another JVM."""
        jvm, self._jvm = self._jvm, None
        self.release()
        if jvm is None:
            return None
        obstacle = self._end_query(jvm, successor)
        if obstacle is None:
            return jvm
        _log.warning("jvm_not_kept", reason=obstacle)
        jvm.close()
        return None

    def _end_query(self, jvm: Jvm, successor: JoinPlan) -> str | None:
        """Why `successor` cannot use the JVM. None: it can."""
        has_same_login = self._plan.security == successor.security
        if not (has_same_login and can_share_jvm(self._plan.spark_conf, successor.spark_conf)):
            return "the new query needs other options of the JVM"
        try:
            jvm.end_query()
        except Exception as error:
            return str(error).partition("\n")[0]
        return None

    def release(self) -> None:
        """May be called without acquired resources."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        for jvm in (self._jvm, self._starting):
            if jvm is not None:
                jvm.close()
        self._jvm = self._starting = None

    def _new_jvm(self) -> Jvm:
        return Jvm(self._settings, self._plan.driver_options, self._redaction)


@dataclass(frozen=True)
class QueryRun:
    """One run of the query, from its start to its end."""

    spark: SparkSession
    plan: JoinPlan
    access: KafkaAccess
    checkpoint: Checkpoint
    stats: QueryStats
    resources: Resources
