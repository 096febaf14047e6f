"""Runs a case through the real-time engine's processor in micro-batches, as spark_runner does."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from job.dataflow.dataflow import output_records, side_rows
from job.join_spec.expressions import SIDES
from job.real_time.join import RowCounts, real_time_join
from job.spark.try_eval import register_try_eval
from tests.semantics import spark_runner
from tests.semantics.join_cases import Batch, Case, Phase
from tests.semantics.spark_session import fast_folder


def run_in_real_time_engine(
    spark: SparkSession, case: Case, phases: Sequence[Phase]
) -> list[Batch]:
    """The batches Spark runs, fed in the batches of `phases`."""
    folder = Path(tempfile.mkdtemp(prefix="streamjoin-", dir=fast_folder()))
    try:
        with spark_runner.conf(spark, spark_runner.conf_of(case)):
            return _Run(spark, case, folder).through(phases)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Run(spark_runner.Run):
    def _start(self, on_batch: Any) -> StreamingQuery:
        plan = self._plan
        if plan.checks.any:
            register_try_eval(self._spark)
        left, right = (
            side_rows(self._topics[side].records(), plan.side(side), plan, None) for side in SIDES
        )
        rows = real_time_join(left, right, plan, real_time=False, counts=RowCounts(self._spark))
        writer = output_records(rows, plan).writeStream.foreachBatch(on_batch)
        writer = writer.outputMode("update")
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()
