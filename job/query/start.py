"""Starts one run of the query, together with the code that sets its watermark."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace

from pyspark.sql import SparkSession

from job.checkpoint.changes import read_replay
from job.checkpoint.checkpoint import Checkpoint
from job.dataflow.dataflow import kafka_dataflow
from job.delivery.kept_back import KeptBack
from job.delivery.record_writer import record_writer
from job.delivery.sink import RunningQuery, start_query
from job.delivery.topic_limits import read_limits
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
        self, spark: SparkSession, plan: JoinPlan, access: KafkaAccess, checkpoint: Checkpoint
    ) -> Iterator[RunningQuery]:
        run = QueryRun(spark, plan, access, checkpoint, self._stats, self._resources)
        replay = read_replay(checkpoint)
        if plan.real_time is not None:
            with self._phases.start(run, replay, new_query=self._new_query) as running:
                yield running
            return
        times = EventTimes(run) if replay is None else ReplayingTimes(run, replay)
        limits = read_limits(plan, access)
        with ThreadPoolExecutor(1, "delivery") as threads:
            # A first start claims its name, which takes as long as building the dataflow.
            prepared = threads.submit(
                record_writer,
                *(spark, plan, access, checkpoint, limits, replay),
                fence=checkpoint.fence,
                follows_catch_up=False,
                new_query=self._new_query,
            )
            records = kafka_dataflow(spark, plan, access, limits, replay)
            writer = prepared.result()
        with closing(writer), closing(times):
            with times.starting():
                running = start_query(
                    *(records, plan, access, checkpoint, limits, writer),
                    *(self._stats, times.batch_ended, KeptBack(checkpoint, replay)),
                )
            running = replace(running, keeps_watermark=times.keeps_watermark)
            times.follow(running)
            yield running
