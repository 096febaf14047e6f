"""Runs a case on Spark, with the dataflow of the job, in exactly the batches of the case.

Memory sources, which the previous batch fills: both sides of a batch exist before Spark plans it,
and a batch without data runs exactly if there are no records.
"""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from job.dataflow.dataflow import dataflow
from job.dataflow.output_columns import TIMESTAMP
from job.event_time.partitions import Partitions
from job.join.join import SparkJoin
from job.plan.plan import JoinPlan
from job.plan.record_checks import FAILED_FIELD
from job.protocol.reasons import REASONS
from job.replay.replay import Replay
from job.semantics.backlog import PlannedBatch
from job.spec.sides import SIDES, Side
from tests.semantics.job_watermark import JobWatermark
from tests.semantics.join_cases import Batch, Case, Phase, canonical
from tests.semantics.memory_topic import MemoryTopic, conf
from tests.semantics.spark_session import fast_folder

_STREAMING = "spark.sql.streaming."
_PARTITIONS = 3
"""Partitions of each topic; records of further partitions are sampled."""


def run_on_spark(spark: SparkSession, case: Case, phases: Sequence[Phase]) -> list[Batch]:
    """Runs the batches of `phases` on Spark."""
    folder = Path(tempfile.mkdtemp(prefix="streamjoin-", dir=fast_folder()))
    try:
        with conf(spark, conf_of(case.plan)):
            return list(chain.from_iterable(Run(spark, case, folder).through(phases)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Run:
    def __init__(
        self, spark: SparkSession, case: Case, folder: Path, replay: Replay | None = None
    ) -> None:
        self._replay = replay
        self._spark = spark
        self._plan = case.plan.reading(dict.fromkeys(SIDES, (_PARTITIONS,)))
        self._topics = {side: MemoryTopic(spark) for side in SIDES}
        self._partitions = Partitions.none()
        self._folder = folder
        self._output: dict[int, Counter[tuple[str, str, str]]] = {}
        self._failed: dict[int, Counter[tuple[str, str]]] = {}

    def through(self, phases: Sequence[Phase]) -> Iterator[list[Batch]]:
        """The batches of each phase, which runs when they are asked for."""
        return map(self._phase, phases)

    def _phase(self, phase: Phase) -> list[Batch]:
        waiting = list(phase.batches)
        watermark = self._watermark(self._partitions)
        running = self._feed(waiting)

        def on_batch(rows: DataFrame, batch_id: int) -> None:
            nonlocal running
            results = [row.asDict() for row in rows.collect()]
            self._output[batch_id] = Counter(
                (_id(row["headers"]), _texts(row), canonical(row["value"]))
                for row in results
                if row.get(FAILED_FIELD) is None
            )
            self._failed[batch_id] = Counter(
                (_id(row["headers"]), row[FAILED_FIELD])
                for row in results
                if row.get(FAILED_FIELD) is not None
            )
            watermark.unread = {side: dict.fromkeys(running.backlog(side), 1) for side in SIDES}
            watermark.batch_ended()
            running = self._feed(waiting)

        name = f"{_STREAMING}noDataMicroBatches.enabled"
        # The job runs none in a join in which no result waits (tuning.TABLE_CONF).
        waits = self._plan.table_side is None or self._plan.stream_waits
        runs = phase.runs_batches_without_data and waits
        with conf(self._spark, {name: str(runs).lower()}):
            query = self._start(on_batch)
            watermark.query.set_result(query)
            try:
                query.processAllAvailable()
                return [
                    _batch(self._output[p["batchId"]], self._failed[p["batchId"]], p)
                    for p in _progress(query)
                ]
            finally:
                query.stop()
                lost = phase.ends.times_lost
                self._partitions = Partitions.none() if lost else watermark.read_again()

    def _watermark(self, partitions: Partitions) -> JobWatermark:
        return JobWatermark(self._plan, partitions)

    def _start(self, on_batch: Any) -> StreamingQuery:
        left, right = (self._topics[side].records() for side in SIDES)
        rows = dataflow(left, right, self._plan, SparkJoin(), replay=self._replay)
        writer = rows.writeStream.foreachBatch(on_batch).outputMode("append")
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def _feed(self, waiting: list[PlannedBatch]) -> PlannedBatch:
        """Add the records of the next batch to the topics; none for a batch without data."""
        planned = waiting.pop(0) if waiting else PlannedBatch()
        for side in SIDES:
            if planned.records(side):
                self._topics[side].add(planned.records(side))
        return planned


def _progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """Progress of each batch that ran."""
    reports = [json.loads(report.json()) for report in query._jsq.recentProgress()]
    return [report for report in reports if report["stateOperators"]]


def _batch(
    output: Counter[tuple[str, str, str]],
    failed: Counter[tuple[str, str]],
    report: Any,
) -> Batch:
    (operator,) = report["stateOperators"]
    watermark = datetime.fromisoformat(report["eventTime"]["watermark"])
    return Batch(
        batch_id=report["batchId"],
        watermark_ms=round(watermark.timestamp() * 1000),
        output=output,
        failed_results=failed,
        late_rows=operator["numRowsDroppedByWatermark"],
        state_rows=operator["numRowsTotal"],
        updated_rows=operator["numRowsUpdated"],
        removed_rows=operator["numRowsRemoved"],
        duplicates={},
        bad_records={side: _bad_records(report, side) for side in SIDES},
    )


def _bad_records(report: Any, side: Side) -> Counter[str]:
    counts = report.get("observedMetrics", {}).get(side, {})
    return +Counter({reason: counts.get(reason, 0) for reason in REASONS})


def _id(headers: Any) -> str:
    return bytes(headers[0].value).decode()


def _texts(row: Any) -> str:
    """Key, further headers and timestamp."""
    values = {
        header.key: None if header.value is None else bytes(header.value).decode()
        for header in row["headers"][1:]
    }
    return json.dumps([row["key"], values, row.get(TIMESTAMP)])


def conf_of(plan: JoinPlan) -> dict[str, str]:
    """Settings of the plan that can be set on a running session."""
    changeable = (_STREAMING, "spark.sql.constraintPropagation.")
    conf = {name: value for name, value in plan.spark_conf.items() if name.startswith(changeable)}
    conf["spark.sql.shuffle.partitions"] = str(plan.state_partitions)
    conf[f"{_STREAMING}queryEvolution.enableSourceEvolution"] = (
        "false"  # memory sources have no names
    )
    conf[f"{_STREAMING}numRecentProgressUpdates"] = "100"
    # The job counts rows in state_rows.py; this test compares the count of Spark.
    conf[f"{_STREAMING}stateStore.rocksdb.trackTotalNumberOfRows"] = "true"
    return conf
