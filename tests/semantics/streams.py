"""The dataflow of the job on Spark without a broker: records step by step, and their results."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job.dataflow.dataflow import dataflow
from job.join.join import join_of
from job.plan import tuning
from job.plan.planner import join_plan
from job.protocol.progress import BatchProgress, batch_progress
from job.spark.watermark import raise_watermark
from job.spec.sides import SIDES, Side
from job.spec.spec import spec_from_yaml
from tests.semantics.job_watermark import JobWatermark
from tests.sql_worker import SQL

# Event times of tests are in seconds after this time (epoch ms): 2023-11-14T22:13:20Z.
T0 = 1_700_000_000_000

SPEC = """
name: tested
kafka: {{bootstrap_servers: "nowhere:1"}}
left:
  topic: lefts
  schema: {left_schema}
  key: {left_key}
  event_time: {left_event_time}
  watermark_delay: 10 seconds
  max_event_time_ahead: {max_ahead}
  {left_more}
right:
  topic: rights
  schema: {right_schema}
  key: {right_key}
  event_time: t
  watermark_delay: 10 seconds
  max_event_time_ahead: {max_ahead}
join: {{type: {join_type}, {operator}{join}}}
output:
  topic: out
  columns: {{{columns}}}
  delivery: at_least_once
  {output_more}
checkpoint: unused
on_bad_record: drop
{more}
"""

_DEFAULTS = {
    "left_schema": "k STRING, t TIMESTAMP, a BIGINT",
    "left_key": "[k]",
    "left_event_time": "t",
    "left_more": "",
    # The timestamp of all records is T0.
    "max_ahead": "10000000 days",
    "right_schema": "k STRING, t TIMESTAMP, b BIGINT",
    "right_key": "[k]",
    "join_type": "left_outer",
    "join": "match_window: {before: 0 seconds, after: 5 seconds}",
    "columns": "k: left.k, a: left.a, b: right.b",
    "output_more": "",
    "more": "",
}

_RECORD = (
    "key STRING, value STRING, partition INT, offset BIGINT, timestamp BIGINT, "
    "headers ARRAY<STRUCT<key: STRING, value: STRING>>"
)


def spec_text(**changes: str) -> str:
    """With the operator of Spark, unless the spec can have only the other one."""
    texts = {**_DEFAULTS, **changes}
    only = ("table:", "deduplicate:")
    has_one = "engine: real_time" in texts["more"] or any(f in texts["left_more"] for f in only)
    return SPEC.format(**texts, operator="" if has_one else "operator: spark, ")


class Stream:
    """A running query of a spec; each `feed` is one batch of input."""

    def __init__(self, spark: SparkSession, folder: Path, text: str) -> None:
        self._folder = folder
        self._fed = 0
        self._batches: list[list[tuple[str | None, str, Any]]] = []
        self._spark = spark
        self._conf_before = {name: spark.conf.get(name, None) for name in _runtime_conf()}
        for name, value in _runtime_conf().items():
            spark.conf.set(name, value)
        plan = join_plan(spec_from_yaml(text, {}), SQL, state_partitions=1)
        self._plan = plan.reading({"left": (2,), "right": (2,)})
        self._query = self._started()

    def _started(self) -> StreamingQuery:
        left, right = (self._records(self._spark, side) for side in SIDES)
        self.watermark = JobWatermark(self._plan)
        join = self._join = join_of(self._spark, self._plan)
        query = (
            dataflow(left, right, self._plan, join)
            .writeStream.foreachBatch(self._collect)
            .outputMode(join.output_mode)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .start()
        )
        self.watermark.query.set_result(query)
        return query

    def restart(self) -> None:
        """Restart the query from its checkpoint, with an empty `progress`."""
        self._query.stop()
        self._query = self._started()

    def raise_watermark(self, at: float) -> None:
        """Raise the watermark to `at` seconds after T0, as the job does for an idle side."""
        raise_watermark(self._query, T0 + round(at * 1000))

    def feed(self, left: Iterable[Any] = (), right: Iterable[Any] = ()) -> list[dict[str, Any]]:
        """Send records to both sides. Returns the results of all batches until the query is idle.

        A record is a dict (its JSON is the value), text, None (a tombstone), or a `record(…)`.
        """
        self._batches.clear()
        self.send(left, right)
        self._query.processAllAvailable()
        return [json.loads(value) for batch in self._batches for _, value, _ in batch]

    def send(self, left: Iterable[Any] = (), right: Iterable[Any] = ()) -> None:
        """As `feed`, without waiting."""
        for side, records in (("left", list(left)), ("right", list(right))):
            if records:
                self._write(side, records)

    def keys_and_ids(self) -> list[tuple[str | None, str]]:
        """Record key and streamjoin-id of the results of the last `feed`."""
        return [
            (key, bytes(headers[0]["value"]).decode())
            for batch in self._batches
            for key, _, headers in batch
        ]

    def progress(self) -> list[BatchProgress]:
        """Progress of the last batches, newest last; without triggers that ran no batch."""
        return [
            batch_progress(json.dumps(_plain(each)), self._plan.topics)
            for each in self._query.recentProgress
            if "addBatch" in each["durationMs"]
        ]

    def duplicates(self, side: Side) -> int:
        """Rows that the side has dropped as duplicates since the last start."""
        assert self._join.counts is not None
        return self._join.counts.duplicate_rows(side)

    def explain(self) -> None:
        """Prints the plan of the last batch."""
        self._query.explain()

    def stop(self) -> None:
        """Stop the query and restore the session, which other tests share."""
        self._query.stop()
        for name, value in self._conf_before.items():
            if value is None:
                self._spark.conf.unset(name)
            else:
                self._spark.conf.set(name, value)

    def _collect(self, batch: DataFrame, batch_id: int) -> None:
        del batch_id
        self._join.begin_batch(self.watermark.query.result(), self._spark)
        self._batches.append([tuple(row) for row in batch.collect()])
        self.watermark.batch_ended()

    def _records(self, spark: SparkSession, side: str) -> DataFrame:
        folder = self._folder / side
        folder.mkdir(parents=True, exist_ok=True)
        rows = spark.readStream.schema(_RECORD).name(side).json(str(folder))
        return rows.selectExpr(
            "cast(key AS BINARY) AS key",
            "cast(value AS BINARY) AS value",
            "partition",
            "offset",
            "timestamp_millis(timestamp) AS timestamp",
            "transform(headers, h -> struct(h.key, cast(h.value AS BINARY) AS value)) AS headers",
        )

    def _write(self, side: str, records: list[Any]) -> None:
        lines = []
        for value in records:
            self._fed += 1
            fields = value if _is_record(value) else record(value)
            lines.append(json.dumps({"offset": self._fed, **fields}))
        # Renamed, so that Spark does not read an incomplete file.
        hidden = self._folder / f".{self._fed}"
        hidden.write_text("\n".join(lines) + "\n")
        hidden.rename(self._folder / side / f"{self._fed}.json")


def record(value: Any, **fields: Any) -> dict[str, Any]:
    """A Kafka record with the given value, key, headers, partition, offset and timestamp."""
    text = value if value is None or isinstance(value, str) else json.dumps(value)
    return {"value": text, "partition": 0, "timestamp": T0, "kafka": True, **fields}


def _is_record(value: Any) -> bool:
    return isinstance(value, dict) and "kafka" in value


def _runtime_conf() -> dict[str, str]:
    changeable = ("spark.sql.session", "spark.sql.ansi", "spark.sql.mapKey", "spark.sql.streaming")
    changeable += ("spark.sql.constraintPropagation",)
    kept = {name: value for name, value in tuning.CONF.items() if name.startswith(changeable)}
    return {**tuning.FROZEN_CONF, **kept, "spark.sql.streaming.numRecentProgressUpdates": "100"}


def _plain(progress: Any) -> Any:
    """Progress as JSON: PySpark returns observed metrics as Rows."""
    plain = json.loads(json.dumps(progress, default=str))
    plain["observedMetrics"] = {
        name: row.asDict() for name, row in progress["observedMetrics"].items()
    }
    for source in plain["sources"]:
        source["endOffset"] = source["latestOffset"] = {}
    return plain
