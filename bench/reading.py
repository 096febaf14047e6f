"""What it costs to read records: CPU time of a side, from the bytes of a record to its columns.

python -m bench.reading                       all shapes, about 4 minutes
python -m bench.reading --thousands 100 --shape csv

Each shape has the same records: a key, an event time and a number, and what its name says. The
records are in memory, and nothing is joined: compared with the CPU time of a whole join
(docs/benchmarks/results.md), a difference between two shapes is what a join pays for it.
"""

import argparse
import io
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import fastavro
import psutil
import yaml

from bench.report import machine
from bench.sql import SQL
from job.dataflow.sides import side_rows
from job.formats.columns import all_columns
from job.formats.decoder import implementation
from job.formats.registry import RegistryAccess
from job.formats.schemas import Part, ReaderSchema, RegisteredSchema
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.redaction import Redaction
from job.settings import JobSettings, read_settings
from job.spark.session import Jvm
from job.spec.spec import spec_from_yaml
from job.spec.value_format import Format

_BEGIN_MS = 1_700_000_000_000
_RUNS = 5
_NO_REGISTRY = "http://localhost:1"
"""The plan has the only schema, so that nobody asks for it."""
_COLUMNS = 10
"""Of the shapes with many columns of one type."""

Value = Callable[[int], Any]
_SCHEMA = "k STRING, t TIMESTAMP, n BIGINT"
_SCHEMA_ID = 1
_HEADER = bytes([0, 0, 0, 0, _SCHEMA_ID])
"""Confluent's: a byte 0, and the id of the schema."""
_AVRO = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "k", "type": "string"},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "n", "type": "long"},
    ],
}
_PROTOBUF = 'syntax = "proto3"; message Row { string k = 1; int64 t = 2; int64 n = 3; }'


@dataclass(frozen=True)
class Shape:
    value: Value
    """The value of record n: bytes, text, or what is written as JSON."""
    schema: str | None = _SCHEMA
    """None: that of `registered`."""
    event_time: str = "t"
    side: Mapping[str, Any] = field(default_factory=dict)
    registered: tuple[Format, str] | None = None
    """Format, and schema in the registry."""


def _iso(n: int) -> str:
    time = datetime.fromtimestamp((_BEGIN_MS + n) / 1_000, UTC)
    return time.isoformat(timespec="milliseconds")


def _row(n: int, t: Any) -> dict[str, Any]:
    return {"k": f"k{n % 1_000}", "t": t, "n": n}


def _with_columns(n: int, value: Any) -> dict[str, Any]:
    columns = {f"c{index}": value for index in range(_COLUMNS)}
    return {**_row(n, _BEGIN_MS + n), **columns}


def _columns(kind: str) -> str:
    return "".join(f", c{index} {kind}" for index in range(_COLUMNS))


def _avro(n: int) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, _AVRO, _row(n, _BEGIN_MS + n))
    return _HEADER + content.getvalue()


def _protobuf(n: int) -> bytes:
    key = f"k{n % 1_000}".encode()
    fields = b"\x0a" + _varint(len(key)) + key + b"\x10" + _varint(_BEGIN_MS + n)
    return _HEADER + b"\x00" + fields + b"\x18" + _varint(n)


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


_PLAIN = Shape(lambda n: _row(n, _BEGIN_MS + n))
SHAPES = {
    "json": _PLAIN,
    "computed event time": Shape(
        lambda n: _row(n, _BEGIN_MS // 1_000 + n),
        "k STRING, t BIGINT, n BIGINT",
        "timestamp_seconds(t)",
    ),
    "nested event time": Shape(
        lambda n: {"k": f"k{n % 1_000}", "of": {"t": _BEGIN_MS + n}, "n": n},
        "k STRING, of STRUCT<t: BIGINT>, n BIGINT",
        "timestamp_millis(of.t)",
    ),
    "ISO-8601 event time": Shape(lambda n: _row(n, _iso(n))),
    "local event time": Shape(
        lambda n: _row(n, _iso(n).removesuffix("+00:00")), side={"time_zone": "Europe/Berlin"}
    ),
    "filter": Shape(_PLAIN.value, side={"filter": "n >= 0"}),
    "10 BIGINT columns": Shape(lambda n: _with_columns(n, n), _SCHEMA + _columns("BIGINT")),
    "10 TIMESTAMP columns": Shape(
        lambda n: _with_columns(n, _iso(n)), _SCHEMA + _columns("TIMESTAMP")
    ),
    "10 DECIMAL columns": Shape(
        lambda n: _with_columns(n, n / 100), _SCHEMA + _columns("DECIMAL(12, 2)")
    ),
    "csv": Shape(lambda n: f"k{n % 1_000},{_BEGIN_MS + n},{n}", side={"format": "csv"}),
    "debezium": Shape(
        lambda n: {"before": None, "after": _row(n, _BEGIN_MS + n), "op": "c", "source": {}},
        side={"envelope": "debezium"},
    ),
    "avro": Shape(_avro, None, registered=(Format.AVRO, json.dumps(_AVRO))),
    "protobuf": Shape(
        _protobuf, None, "timestamp_millis(t)", registered=(Format.PROTOBUF, _PROTOBUF)
    ),
}


def plan_of(shape: Shape) -> JoinPlan:
    declared = (shape.schema or "").split(", ")
    columns = [part.split()[0] for part in declared if part.startswith("c")]
    registered = {} if shape.registered is None else {"format": shape.registered[0].value}
    side = {"key": ["k"], "watermark_delay": "10 seconds"}
    spec = {
        "name": "reading",
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "left": {
            **side,
            "topic": "left",
            "event_time": shape.event_time,
            **({} if shape.schema is None else {"schema": shape.schema}),
            **shape.side,
            **registered,
        },
        "right": {**side, "topic": "right", "schema": _SCHEMA, "event_time": "t"},
        "join": {"type": "inner", "match_window": {"before": "1 minute", "after": "1 minute"}},
        "output": {
            "topic": "out",
            "columns": {name: f"left.{name}" for name in ("k", "n", *columns)},
        },
        "on_bad_record": "drop",
        "checkpoint": "file:/nonexistent",
    }
    if registered:
        spec["schema_registry"] = {"url": _NO_REGISTRY}
    written = spec_from_yaml(yaml.safe_dump(spec), {})
    return join_plan(written, SQL, state_partitions=2, readers=_readers(shape))


def _readers(shape: Shape) -> dict[Part, ReaderSchema]:
    if shape.registered is None:
        return {}
    kind, text = shape.registered
    schema = RegisteredSchema(_SCHEMA_ID, kind.upper(), text)
    columns = all_columns(implementation(kind).fields(schema), "left.schema", "left-value")
    return {Part("left"): ReaderSchema(kind, "left-value", 1, schema, columns)}


def _content(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def cpu_us_per_record(jvm: Jvm, spark: Any, shape: Shape, records: int) -> float:
    """CPU time of the JVM for a record, the median of the runs after the first one."""
    plan = plan_of(shape)
    values = [shape.value(n) for n in range(1_000)]
    contents = [_content(value) for value in values]
    with tempfile.TemporaryDirectory() as folder:
        spark.createDataFrame(list(enumerate(contents)), "n INT, v BINARY").join(
            spark.range(records // len(contents)).select("id"), how="cross"
        ).selectExpr(
            "cast(null AS BINARY) AS key",
            "v AS value",
            "'left' AS topic",
            "0 AS partition",
            "id * 1000 + n AS offset",
            f"timestamp_millis({_BEGIN_MS} + 1000) AS timestamp",
            "cast(null AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
        ).coalesce(2).write.mode("overwrite").parquet(f"{folder}/records")
        stored = spark.read.parquet(f"{folder}/records")
        rows = side_rows(stored, plan.left, plan, RegistryAccess(_NO_REGISTRY))
        count = rows.count()
        if count != records:
            raise SystemExit(f"{count} of {records} records were read: the shape is wrong")
        process = psutil.Process(jvm.pid)
        used = []
        for _ in range(_RUNS):
            before = sum(process.cpu_times()[:2])
            rows.write.format("noop").mode("overwrite").save()
            used.append(sum(process.cpu_times()[:2]) - before)
    return statistics.median(used[1:]) / records * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--thousands", type=int, default=1_000, help="of records (1,000)")
    parser.add_argument("--shape", action="append", dest="shapes", choices=SHAPES)
    arguments = parser.parse_args()
    settings = read_settings(JobSettings)
    of_plain = plan_of(_PLAIN)
    jvm = Jvm(settings, of_plain.driver_options, Redaction())
    try:
        spark = jvm.session(settings, of_plain.spark_conf)
        print(machine())
        print("\n| records | CPU time of a record, µs | more than json, µs |\n|---|--:|--:|")
        plain = None
        records = arguments.thousands * 1_000
        for name in dict.fromkeys(["json", *(arguments.shapes or SHAPES)]):
            cost = cpu_us_per_record(jvm, spark, SHAPES[name], records)
            plain = cost if plain is None else plain
            print(f"| {name} | {cost:.2f} | {cost - plain:+.2f} |", flush=True)
    finally:
        jvm.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
