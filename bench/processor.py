"""The join of the real-time engine against Spark's own, both in micro-batches, without Kafka.

python -m bench.processor                       400,000 records per side in 8 batches, two rounds
python -m bench.processor --hot 0.02            one record in fifty has one of ten keys

Reads the same files, runs the dataflow of the job and drops the results. Prints rows per second and
per CPU-second of the JVM after the first batch. Record n of each side has event time n ms.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from rich.box import MARKDOWN
from rich.table import Table

from bench.load import FIRST_EVENT_MS
from bench.report import machine, printed
from deploy.local.java import java_home
from job.dataflow.dataflow import dataflow, side_rows
from job.dataflow.results import output_records
from job.join_spec.sides import SIDES
from job.join_spec.spec import spec_from_document
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.real_time.join import RowCounts, real_time_join
from job.redaction import Redaction
from job.settings import JobSettings
from job.spark.session import Jvm
from job.spark.watermark import pass_late_watermark, raise_watermark

_HOT_KEYS = 10
_WATERMARK_DELAY_MS = 10_000
_MATCH_WINDOW_MS = 60_000
_SESSION_CONF = {"spark.sql.streaming.queryEvolution.enableSourceEvolution": "false"}


@dataclass
class Measured:
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    results: int = 0
    batches: list[float] = field(default_factory=list)


def plan_of(join_type: str) -> JoinPlan:
    side = {
        "schema": "k BIGINT, t TIMESTAMP, v BIGINT",
        "key": ["k"],
        "event_time": "t",
        "watermark_delay": f"{_WATERMARK_DELAY_MS} milliseconds",
    }
    window = f"{_MATCH_WINDOW_MS} milliseconds"
    document: dict[str, Any] = {
        "name": "processor",
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "left": {"topic": "left", **side},
        "right": {"topic": "right", **side},
        "join": {"type": join_type, "match_window": {"before": "0 s", "after": window}},
        "output": {
            "topic": "out",
            "columns": {"k": "left.k", "l": "left.v", "r": "right.v"},
            "delivery": "at_least_once",
        },
        "checkpoint": "./unused",
        "on_bad_record": "drop",
    }
    return join_plan(spec_from_document(document), state_partitions=2)


def write_records(spark: SparkSession, folder: Path, arguments: argparse.Namespace) -> None:
    """One file for each batch, with the columns of Spark's Kafka source."""
    per_batch = arguments.records // arguments.batches
    for batch in range(arguments.batches):
        ids = spark.range(batch * per_batch, (batch + 1) * per_batch, 1, 1)
        is_hot = F.expr(f"pmod(xxhash64(id), 1000) < {round(arguments.hot * 1000)}")
        # A key comes twice in a match window, so a row has a partner or two.
        key = F.when(is_hot, -(F.col("id") % _HOT_KEYS)).otherwise(
            F.col("id") % (_MATCH_WINDOW_MS // 2)
        )
        value = F.to_json(F.struct(key.alias("k"), (F.col("id") + FIRST_EVENT_MS).alias("t"),
                                   F.col("id").alias("v")))  # fmt: skip
        columns = {
            "key": F.lit(None).cast("binary"),
            "value": value.cast("binary"),
            "partition": F.lit(0),
            "offset": F.col("id"),
            "timestamp": F.timestamp_millis(F.col("id") + FIRST_EVENT_MS),
        }
        rows = ids.select(*(column.alias(name) for name, column in columns.items()))
        rows.write.mode("append").parquet(str(folder))


def joined_in(program: str, left: DataFrame, right: DataFrame, plan: JoinPlan) -> DataFrame:
    if program == "native":
        return dataflow(left, right, plan)
    counts = RowCounts(left.sparkSession, plan)
    rows = real_time_join(
        side_rows(left, plan.left, plan, None),
        side_rows(right, plan.right, plan, None),
        plan,
        real_time=False,
        counts=counts,
    )
    return output_records(rows, plan)


def run(
    spark: SparkSession, program: str, records: Path, plan: JoinPlan, per_batch: int, jvm: int
) -> Measured:
    schema = spark.read.parquet(str(records)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    left, right = (reader.parquet(str(records)) for _ in SIDES)
    rows = joined_in(program, left, right, plan)
    measured = Measured()
    clock = _Clock(jvm)
    started: Future[StreamingQuery] = Future()

    def on_batch(batch: DataFrame, batch_id: int) -> None:
        newest = FIRST_EVENT_MS + (batch_id + 1) * per_batch
        raise_watermark(started.result(), newest - _WATERMARK_DELAY_MS)
        if program != "native":
            pass_late_watermark(started.result(), spark)
        results = batch.select(F.sum(F.length("value")), F.count(F.lit(1))).collect()[0][1]
        # The first batch compiles.
        if batch_id > 0:
            measured.results += results
            measured.batches.append(clock.lap(measured))
        else:
            clock.lap(Measured())

    with tempfile.TemporaryDirectory(prefix="streamjoin-") as checkpoint:
        query = (
            rows.writeStream.foreachBatch(on_batch)
            .outputMode("append" if program == "native" else "update")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        started.set_result(query)
        query.awaitTermination()
    return measured


class _Clock:
    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._at = time.monotonic()
        self._cpu = self._used()

    def lap(self, measured: Measured) -> float:
        at, cpu = time.monotonic(), self._used()
        seconds = at - self._at
        measured.seconds += seconds
        measured.cpu_seconds += cpu - self._cpu
        self._at, self._cpu = at, cpu
        return seconds

    def _used(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system


def rounds(arguments: argparse.Namespace) -> Iterator[tuple[str, Measured]]:
    os.environ.setdefault("JAVA_HOME", str(java_home()))
    plan = plan_of(arguments.join_type)
    conf = {**plan.spark_conf, **_SESSION_CONF}
    settings = JobSettings(spark_master="local[2]")
    with (
        closing(Jvm(settings, conf, Redaction())) as jvm,
        tempfile.TemporaryDirectory(prefix="streamjoin-") as folder,
    ):
        spark = jvm.session(settings, conf)
        write_records(spark, Path(folder), arguments)
        per_batch = arguments.records // arguments.batches
        for _ in range(arguments.rounds):
            for program in ("native", "processor"):
                yield program, run(spark, program, Path(folder), plan, per_batch, jvm.pid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=400_000, help="of each side")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--hot", type=float, default=0.0, help="share of records with a hot key")
    parser.add_argument("--join-type", default="inner")
    arguments = parser.parse_args()
    table = Table("join", "rows/s", "rows/CPU-s", "results", "last batch, s", box=MARKDOWN)
    rows = 2 * arguments.records * (arguments.batches - 1) // arguments.batches
    for program, measured in rounds(arguments):
        table.add_row(
            program,
            f"{rows / measured.seconds:,.0f}",
            f"{rows / measured.cpu_seconds:,.0f}",
            f"{measured.results:,}",
            f"{measured.batches[-1]:.1f}",
        )
    sys.stdout.write(f"{machine()}\n{printed(table)}")


if __name__ == "__main__":
    main()
