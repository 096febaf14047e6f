"""The warm-up of a change: before the old query stops, the new one runs next to it for some time.

From the cut until the new query has read its records again, no results are emitted. The JVM would
interpret most of the code of the new query in this time. In the warm-up it loads and compiles the
code: the new query reads some of the records, with a checkpoint that is removed afterwards, and its
results are not written.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import replace

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job.change.plan import ChangePlan
from job.checkpoint.folder import Folder
from job.dataflow.dataflow import kafka_dataflow
from job.delivery.sink import START_SECONDS
from job.delivery.topic_limits import limits_of
from job.join.join import Join, join_of
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.preflight import TopicsSnapshot, check_topics
from job.kafka.security import KafkaAccess, kafka_access
from job.plan.plan import JoinPlan
from job.plan.real_time import CATCH_UP_CONF
from job.plan.side_plan import SidePlan
from job.replay.replay import Replay

# With fewer records the new query takes about as long to read them as the warm-up would.
RECORDS_MIN = 10_000
# Records of each topic in a batch: few, because tasks of the old query wait for the tasks of the
# batch.
BATCH_RECORDS = 4_000
BATCHES_MAX = 10
SECONDS_MAX = 20.0

_FOLDER = "warm-up"
_POLL_SECONDS = 0.2

_log = structlog.get_logger()


def saves_time(plan: ChangePlan) -> bool:
    """Whether a change has a warm-up. Only a query that starts registers its schemas."""
    output = plan.new.output
    has_schema = (output.schema or output.key_schema) is not None
    return plan.replay.records >= RECORDS_MIN and not has_schema


def warm_up(
    spark: SparkSession, plan: ChangePlan, checkpoint: Folder, is_cancelled: Callable[[], bool]
) -> None:
    """Run the new query for at most SECONDS_MAX, or until `is_cancelled`.

    `spark`: a session that no other query uses. `checkpoint`: the folder of the new checkpoint.
    """
    new, replay = plan.new, plan.replay
    began = time.monotonic()
    access = kafka_access(new.bootstrap_servers, new.security, new.schema_registry)
    planned = min(BATCHES_MAX, math.ceil(replay.records / (2 * BATCH_RECORDS)))
    checkpoint.remove_folder(_FOLDER)  # of a job that has crashed
    try:
        with closing(join_of(spark, new)) as join:
            batches = _Batches(join, planned)
            records = _records(spark, new, access, replay, join)
            with _running(records, new.name, checkpoint.path(_FOLDER), batches, join) as query:
                while not (batches.have_ended.wait(_POLL_SECONDS) or is_cancelled()):
                    if (error := query.exception()) is not None:
                        raise error
                    if time.monotonic() - began > SECONDS_MAX:
                        break
    finally:
        checkpoint.remove_folder(_FOLDER)
    seconds = round(time.monotonic() - began, 1)
    _log.info("warm_up_ended", batches=batches.count, seconds=seconds)


class _Batches:
    """Computes the rows of each batch, and writes none."""

    def __init__(self, join: Join, planned: int) -> None:
        self.query: Future[StreamingQuery] = Future()
        self.count = 0
        self.have_ended = threading.Event()
        self._join = join
        self._planned = planned

    def __call__(self, rows: DataFrame, _: int) -> None:
        self._join.begin_batch(self.query.result(START_SECONDS), rows.sparkSession)
        rows.write.format("noop").mode("append").save()
        self.count += 1
        if self.count >= self._planned:
            self.have_ended.set()


@contextmanager
def _running(
    records: DataFrame, name: str, location: str, batches: _Batches, join: Join
) -> Iterator[StreamingQuery]:
    query = (
        records.writeStream.queryName(f"{name} ({_FOLDER})")
        .outputMode(join.output_mode)
        .trigger(processingTime="0 seconds")
        .option("checkpointLocation", location)
        .foreachBatch(batches)
        .start()
    )
    batches.query.set_result(query)
    try:
        yield query
    finally:
        query.stop()


def _records(
    spark: SparkSession, plan: JoinPlan, access: KafkaAccess, replay: Replay, join: Join
) -> DataFrame:
    if plan.real_time is not None:
        for name, value in CATCH_UP_CONF.items():
            spark.conf.set(name, value)
    topics = check_topics(plan, KafkaAdmin(access))
    plan = _prepared(plan, topics, replay)
    return kafka_dataflow(spark, plan, access, limits_of(topics), join, replay)


def _prepared(plan: JoinPlan, topics: TopicsSnapshot, replay: Replay) -> JoinPlan:
    """The plan with the numbers of partitions, the start positions and small batches."""
    plan = topics.plan_with_partitions(plan).starting_at(replay.start_positions)
    return plan.with_sides(_in_small_batches)


def _in_small_batches(side: SidePlan) -> SidePlan:
    return replace(
        side, source_options={**side.source_options, "maxOffsetsPerTrigger": str(BATCH_RECORDS)}
    )
