"""Starts one run of the query, together with the code that sets its watermark."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import replace

import structlog
from pyspark.sql import SparkSession

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.commits import interval_watermark_ms
from job.checkpoint.successor import read_replay
from job.dataflow.dataflow import kafka_dataflow
from job.dataflow.written import TopicLimits
from job.delivery.dead_letter_writer import DeadLetterWriter
from job.delivery.kept_back import KeptBack
from job.delivery.record_writer import RecordWriter, record_writer
from job.delivery.sink import BatchSink, RunningQuery, start_intervals, start_micro_batches
from job.join.join import Join, join_of
from job.join.live_watermark import LiveWatermark
from job.join.processor import release_states
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.security import KafkaAccess, librdkafka_settings
from job.kafka.topic_ends import TopicEnds
from job.plan.plan import JoinPlan
from job.plan.real_time import CATCH_UP_CONF
from job.protocol.status import Phase
from job.query.control_loop import ControlLoop, first_state
from job.query.driver import State
from job.query.live_reports import LiveReports
from job.query.live_watermark import WatermarkLooks
from job.query.pacing import Pacing
from job.query.query_hooks import QueryHooks
from job.query.runtime import QueryRun, Resources
from job.query.stats import QueryStats
from job.replay.replay import Replay
from job.spec.join_conditions import JoinOperator

_log = structlog.get_logger()


class QueryStarter:
    """Starts one run after another. With engine real_time a run ends when the other phase is
    better, and the next one begins on the same checkpoint."""

    def __init__(self, stats: QueryStats, resources: Resources, *, new_query: bool) -> None:
        self._stats = stats
        self._resources = resources
        self._new_query = new_query
        self._next_phase = Phase.CATCH_UP
        self._pacing = Pacing()
        self._paced_session: SparkSession | None = None
        """The session that has run intervals last. Another one has another JVM."""
        self._running: ControlLoop | None = None
        self._processor_session: SparkSession | None = None
        """The session that has run the processor last."""

    @property
    def phase(self) -> Phase | None:
        """Phase of the running query, as JobStatus.phase."""
        loop = self._running
        if loop is None:
            return None
        return Phase.LOADING_TABLE if loop.state.is_loading else loop.state.run.phase

    @property
    def must_end(self) -> bool:
        """Whether the running query must end now, and be started again."""
        return self._running is not None and self._running.must_end

    @property
    def table_records_left(self) -> int | None:
        """As JobStatus.table_records_left."""
        loop = self._running
        if loop is None or not loop.state.is_loading or loop.state.loading is None:
            return None
        return loop.state.loading.records_left

    @property
    def raise_watermark(self) -> Callable[[int], None]:
        """Raises the watermark of the running query, in milliseconds, for an idle side."""
        assert self._running is not None
        return self._running.raise_watermark

    def forget_phase(self) -> None:
        """Called when the query is stopped or has failed: its next run begins with catch-up, and
        reads its state from the checkpoint."""
        self._next_phase = Phase.CATCH_UP
        if self._processor_session is not None:
            with suppress(Exception):  # the JVM may be gone
                release_states(self._processor_session)

    @contextmanager
    def start(
        self,
        spark: SparkSession,
        plan: JoinPlan,
        kafka: KafkaAdmin,
        limits: TopicLimits,
        checkpoint: Checkpoint,
    ) -> Iterator[RunningQuery]:
        """`kafka`: the admin client of the start, which is closed before the query runs."""
        access = kafka.access
        run = QueryRun(spark, plan, access, checkpoint, self._stats, self._resources)
        is_processor = plan.operator is JoinOperator.STREAMJOIN
        self._processor_session = spark if is_processor else None
        replay = read_replay(checkpoint)
        phase = None if plan.real_time is None else self._begin_phase(run)
        fence = checkpoint.fence  # before the rest of the checkpoint
        repeats_interval = checkpoint.interrupted_interval is not None
        as_interval = repeats_interval or phase is Phase.REAL_TIME
        join = join_of(
            *(spark, plan),
            as_interval=as_interval,
            in_intervals=phase is Phase.REAL_TIME,
            late_at_least_ms=interval_watermark_ms(checkpoint) or 0,
        )
        with closing(join):
            self._stats.count_rows_with(join.counts)
            with ThreadPoolExecutor(1, "delivery") as threads:
                # A first start claims its name, and a start after a crash fences the producers.
                # Both take about as long as building the dataflow.
                prepared = threads.submit(
                    record_writer,
                    *(spark, plan, kafka, checkpoint, limits, replay),
                    fence=fence,
                    follows_catch_up=phase is Phase.REAL_TIME,
                    new_query=self._new_query,
                )
                records = kafka_dataflow(
                    *(spark, plan, access, limits, join, replay),
                    in_intervals=phase is Phase.REAL_TIME,
                )
                writer = prepared.result()
                del kafka, prepared
            with closing(writer), self._loop(run, replay, phase, writer, join.live) as loop:
                with loop.starting():
                    if phase is Phase.REAL_TIME:
                        running = start_intervals(records, plan, checkpoint, writer)
                    else:
                        sink = BatchSink(
                            *(plan, writer, join, _letter_writer(plan, access, join, limits)),
                            *(self._stats, loop.batch_ended, KeptBack(checkpoint, replay)),
                        )
                        running = start_micro_batches(records, plan, join, checkpoint, sink)
                loop.follow(running)
                self._running = loop
                run_id = str(running.query.runId)
                try:
                    with _live_reports(run, running, join), _live_watermark(run, loop, join.live):
                        yield running
                finally:
                    self._resources.await_reports(run_id)

    def _begin_phase(self, run: QueryRun) -> Phase:
        """Prepare the Spark session and the checkpoint for the phase that is next."""
        phase, self._next_phase = self._next_phase, Phase.CATCH_UP
        if not run.checkpoint.is_committed:
            phase = Phase.CATCH_UP  # The previous run failed while Spark committed its last batch.
        _log.info("phase", phase=phase.value)
        for name, value in CATCH_UP_CONF.items():
            in_phase = value if phase is Phase.CATCH_UP else run.plan.spark_conf[name]
            run.spark.conf.set(name, in_phase)
        run.checkpoint.move_uncommitted_state()
        return phase

    @contextmanager
    def _loop(
        self,
        run: QueryRun,
        replay: Replay | None,
        phase: Phase | None,
        writer: RecordWriter,
        live: LiveWatermark | None,
    ) -> Iterator[ControlLoop]:
        state = first_state(run.plan, run.checkpoint, phase, replay, self._pacing)
        if phase is Phase.REAL_TIME:
            state = self._in_intervals(run, state)
        hooks = QueryHooks(run.spark, run.plan.topics)
        with closing(ControlLoop(run, hooks, writer, state, live)) as loop:
            try:
                yield loop
            finally:
                self._running = None
                self._next_phase, self._pacing = loop.next_phase, loop.next_pacing

    def _in_intervals(self, run: QueryRun, state: State) -> State:
        """The state with the durations of the intervals of this JVM."""
        assert run.plan.real_time is not None
        is_new = run.spark is not self._paced_session
        self._paced_session = run.spark
        records = state.partitions.records if is_new else None
        self._pacing = state.pacing.of_run(run.plan.real_time.checkpoint_interval, records)
        return replace(state, pacing=self._pacing)


def _live_reports(run: QueryRun, running: RunningQuery, join: Join) -> AbstractContextManager[None]:
    if not running.has_intervals:
        return nullcontext()
    assert join.counts is not None, "only a join that counts rows runs in intervals"
    return LiveReports(run, running.query, join.counts).active()


def _live_watermark(
    run: QueryRun, loop: ControlLoop, live: LiveWatermark | None
) -> AbstractContextManager[None]:
    if live is None:
        return nullcontext()
    ends = TopicEnds(librdkafka_settings(run.access), run.plan.topics)
    return WatermarkLooks(loop, run.stats, live, ends.read).active()


def _letter_writer(
    plan: JoinPlan, access: KafkaAccess, join: Join, limits: TopicLimits
) -> DeadLetterWriter | None:
    if plan.dead_letter is None or join.passes_dead_letters:
        return None
    return DeadLetterWriter(plan, plan.dead_letter, access, limits.dead_letter_bytes_max)
