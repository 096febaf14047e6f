"""The join of the real-time engine against Spark's own, both in micro-batches, without Kafka.

python -m bench.processor                       7 batches with 100,000 records in state, two rounds
python -m bench.processor --hot 0.02            one record in fifty has one of ten keys
python -m bench.processor --state-rows 10000000 --rounds 1 --program processor

Reads the same files, runs the dataflow of the job and drops the results. First it fills the state,
in batches that are not measured. Prints rows per second and per CPU-second of the JVM. Record n of
each side has event time n ms.
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
from itertools import pairwise
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
from bench.sql import SQL
from deploy.local.java import java_home
from job.dataflow.dataflow import dataflow
from job.dataflow.joins import Join, SparkJoin, StreamJoin
from job.join_spec.sides import SIDES
from job.join_spec.spec import spec_from_document
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.redaction import Redaction
from job.settings import JobSettings
from job.spark.session import Jvm
from job.spark.watermark import raise_watermark

_HOT_KEYS = 10
_PROGRAMS = ("native", "processor")
_WATERMARK_DELAY_MS = 10_000
_FILL_RECORDS = 250_000
"""Records of each side in a batch that fills the state."""
_SESSION_CONF = {"spark.sql.streaming.queryEvolution.enableSourceEvolution": "false"}


@dataclass
class Measured:
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    results: int = 0
    state_rows: int = 0
    batches: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Records:
    """One file for each batch, which both sides read."""

    folder: Path
    ends: tuple[int, ...]
    """Records up to the end of each batch."""
    measured: int
    """Number of batches at the end that are measured."""

    @property
    def measured_rows(self) -> int:
        return 2 * (self.ends[-1] - self.ends[-1 - self.measured])


def match_window_ms(state_rows: int) -> int:
    """A left row is stored for the match window and the delay, a right row for the delay."""
    return state_rows - 2 * _WATERMARK_DELAY_MS


def plan_of(join_type: str, state_rows: int) -> JoinPlan:
    side = {
        "schema": "k BIGINT, t TIMESTAMP, v BIGINT",
        "key": ["k"],
        "event_time": "t",
        "watermark_delay": f"{_WATERMARK_DELAY_MS} milliseconds",
    }
    window = f"{match_window_ms(state_rows)} milliseconds"
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
    return join_plan(spec_from_document(document), SQL, state_partitions=2)


def write_records(spark: SparkSession, folder: Path, arguments: argparse.Namespace) -> Records:
    """Records with the columns of Spark's Kafka source."""
    window = match_window_ms(arguments.state_rows)
    filled = window + 2 * _WATERMARK_DELAY_MS
    ends = [*range(_FILL_RECORDS, filled, _FILL_RECORDS), filled]
    ends += [filled + (n + 1) * arguments.batch_records for n in range(arguments.batches)]
    for start, end in pairwise([0, *ends]):
        ids = spark.range(start, end, 1, 1)
        is_hot = F.expr(f"pmod(xxhash64(id), 1000) < {round(arguments.hot * 1000)}")
        # A key comes twice in a match window, so a row has a partner or two.
        key = F.when(is_hot, -(F.col("id") % _HOT_KEYS)).otherwise(F.col("id") % (window // 2))
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
    return Records(folder, tuple(ends), arguments.batches)


def run(spark: SparkSession, program: str, records: Records, plan: JoinPlan, jvm: int) -> Measured:
    schema = spark.read.parquet(str(records.folder)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    left, right = (reader.parquet(str(records.folder)) for _ in SIDES)
    join: Join = SparkJoin() if program == "native" else StreamJoin(spark, plan, as_interval=False)
    rows = dataflow(left, right, plan, join)
    measured = Measured()
    clock = _Clock(jvm)
    started: Future[StreamingQuery] = Future()

    def on_batch(batch: DataFrame, batch_id: int) -> None:
        # The watermark stays after the last records. Otherwise further batches would follow.
        end = records.ends[min(batch_id, len(records.ends) - 1)]
        raise_watermark(started.result(), FIRST_EVENT_MS + end - _WATERMARK_DELAY_MS)
        join.begin_batch(started.result(), spark)
        results = batch.select(F.sum(F.length("value")), F.count(F.lit(1))).collect()[0][1]
        if len(records.ends) - records.measured <= batch_id < len(records.ends):
            measured.results += results
            measured.batches.append(clock.lap(measured))
            if join.counts is not None:
                measured.state_rows = sum(join.counts.state_rows(side) for side in SIDES)
        else:
            clock.lap(Measured())

    with tempfile.TemporaryDirectory(prefix="streamjoin-") as checkpoint:
        query = (
            rows.writeStream.foreachBatch(on_batch)
            .outputMode(join.output_mode)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        started.set_result(query)
        query.awaitTermination()
    join.close()
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


def rounds(arguments: argparse.Namespace) -> Iterator[tuple[str, Records, Measured]]:
    os.environ.setdefault("JAVA_HOME", str(java_home()))
    plan = plan_of(arguments.join_type, arguments.state_rows)
    conf = {**plan.spark_conf, **_SESSION_CONF}
    settings = JobSettings(spark_master="local[2]")
    with (
        closing(Jvm(settings, conf["spark.driver.extraJavaOptions"], Redaction())) as jvm,
        tempfile.TemporaryDirectory(prefix="streamjoin-") as folder,
    ):
        spark = jvm.session(settings, conf)
        records = write_records(spark, Path(folder), arguments)
        for _ in range(arguments.rounds):
            for program in arguments.programs or _PROGRAMS:
                yield program, records, run(spark, program, records, plan, jvm.pid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--batch-records", type=int, default=50_000, help="of each side")
    parser.add_argument("--batches", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--hot", type=float, default=0.0, help="share of records with a hot key")
    parser.add_argument("--state-rows", type=int, default=100_000)
    parser.add_argument("--join-type", default="inner")
    parser.add_argument("--program", dest="programs", action="append", choices=_PROGRAMS)
    names = ("join", "rows/s", "rows/CPU-s", "results", "rows in state", "last batch, s")
    table = Table(*names, box=MARKDOWN)
    for program, records, measured in rounds(parser.parse_args()):
        table.add_row(
            program,
            f"{records.measured_rows / measured.seconds:,.0f}",
            f"{records.measured_rows / measured.cpu_seconds:,.0f}",
            f"{measured.results:,}",
            f"{measured.state_rows:,}" if program == "processor" else "",
            f"{measured.batches[-1]:.1f}",
        )
    sys.stdout.write(f"{machine()}\n{printed(table)}")


if __name__ == "__main__":
    main()
