"""Starts one run of the query, together with the code that sets its watermark."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace

from pyspark.sql import SparkSession

from job.change.replay import Replay
from job.checkpoint.changes import read_replay
from job.checkpoint.checkpoint import Checkpoint
from job.dataflow.dataflow import kafka_dataflow
from job.dataflow.joins import Join, join_of
from job.dataflow.written import TopicLimits
from job.delivery.dead_letter_writer import DeadLetterWriter
from job.delivery.kept_back import KeptBack
from job.delivery.record_writer import RecordWriter, record_writer
from job.delivery.sink import BatchSink, RunningQuery, start_intervals, start_micro_batches
from job.kafka.security import KafkaAccess
from job.plan.plan import JoinPlan
from job.protocol.status import Phase
from job.query.event_times import EventTimes
from job.query.real_time import Phases
from job.query.replaying import ReplayingTimes
from job.query.runtime import QueryRun, Resources
from job.query.stats import QueryStats


class QueryStarter:
    def __init__(self, stats: QueryStats, resources: Resources, *, new_query: bool) -> None:
        self._stats = stats
        self._resources = resources
        self._new_query = new_query
        self._phases = Phases()

    @property
    def phase(self) -> Phase | None:
        """Phase of the running query. None: the engine is micro_batch, or no query runs."""
        return self._phases.current

    def forget_phase(self) -> None:
        """Called when the query is stopped or has failed: its next run begins with catch-up."""
        self._phases.forget()

    @contextmanager
    def start(
        self,
        spark: SparkSession,
        plan: JoinPlan,
        access: KafkaAccess,
        limits: TopicLimits,
        checkpoint: Checkpoint,
    ) -> Iterator[RunningQuery]:
        run = QueryRun(spark, plan, access, checkpoint, self._stats, self._resources)
        replay = read_replay(checkpoint)
        phase = None if plan.real_time is None else self._phases.begin(run)
        fence = checkpoint.fence  # before the rest of the checkpoint
        repeats_interval = checkpoint.interrupted_interval is not None
        as_interval = repeats_interval or phase is Phase.REAL_TIME
        with closing(join_of(spark, plan, as_interval=as_interval)) as join:
            if join.counts is not None:
                self._stats.count_rows_with(join.counts)
            with ThreadPoolExecutor(1, "delivery") as threads:
                # A first start claims its name, and a start after a crash fences the producers.
                # Both take about as long as building the dataflow.
                prepared = threads.submit(
                    record_writer,
                    *(spark, plan, access, checkpoint, limits, replay),
                    fence=fence,
                    follows_catch_up=phase is Phase.REAL_TIME,
                    new_query=self._new_query,
                )
                records = kafka_dataflow(
                    *(spark, plan, access, limits, join, replay),
                    in_intervals=phase is Phase.REAL_TIME,
                )
                writer = prepared.result()
            with (
                closing(writer),
                closing(self._event_times(run, replay, phase, join, writer)) as times,
            ):
                with times.starting():
                    if phase is Phase.REAL_TIME:
                        running = start_intervals(records, plan, checkpoint, writer)
                    else:
                        sink = BatchSink(
                            *(plan, writer, join, _letter_writer(plan, access, join, limits)),
                            *(self._stats, times.batch_ended, KeptBack(checkpoint, replay)),
                        )
                        running = start_micro_batches(records, plan, join, checkpoint, sink)
                running = replace(running, keeps_watermark=times.keeps_watermark)
                times.follow(running)
                with self._phases.running(phase):
                    yield running

    def _event_times(
        self,
        run: QueryRun,
        replay: Replay | None,
        phase: Phase | None,
        join: Join,
        writer: RecordWriter,
    ) -> EventTimes:
        if phase is not None:
            assert join.counts is not None, "only a join that counts rows runs in intervals"
            return self._phases.event_times(run, replay, phase, join.counts, writer)
        return EventTimes(run) if replay is None else ReplayingTimes(run, replay)


def _letter_writer(
    plan: JoinPlan, access: KafkaAccess, join: Join, limits: TopicLimits
) -> DeadLetterWriter | None:
    if plan.dead_letter is None or join.passes_dead_letters:
        return None
    return DeadLetterWriter(plan, plan.dead_letter, access, limits.dead_letter_bytes_max)
