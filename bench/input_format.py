"""CPU time of the formats of values: records per CPU-second of JSON, Avro and Protobuf.

python -m bench.input_format                          200,000 records, 5 rounds, 2 minutes
python -m bench.input_format --records 50000 --rounds 3

Runs the first steps of the dataflow, from the bytes of a value to typed columns and a reason, as a
batch on one core, on records in memory. Needs no registry.
"""

import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import fastavro
import yaml
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import DataFrame, SparkSession

from bench.load import FIRST_EVENT_MS
from bench.rounds import arguments, measure, report, spark_session
from bench.sql import SQL
from job.dataflow.sides import decoded
from job.formats import protobuf
from job.formats.registry import RegistryAccess
from job.formats.schemas import ReaderSchema, RegisteredSchema
from job.join_spec.spec import spec_from_yaml
from job.join_spec.value_format import Format
from job.join_spec.value_schema import value_schema
from job.plan.plan import SidePlan
from job.plan.planner import join_plan

_SCHEMA_ID = 1
_CAMPAIGNS = 1_000
_COLUMNS = "ad_id BIGINT, shown_at TIMESTAMP, campaign STRING, cost DOUBLE, user STRING"
_AVRO = {
    "type": "record",
    "name": "Impression",
    "fields": [
        {"name": "ad_id", "type": "long"},
        {"name": "shown_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "campaign", "type": "string"},
        {"name": "cost", "type": ["null", "double"]},
        {"name": "user", "type": ["null", "string"]},
    ],
}
_PROTOBUF = """syntax = "proto3";
message Impression {
  int64 ad_id = 1; int64 shown_at = 2; string campaign = 3; optional double cost = 4;
  optional string user = 5;
}
"""
_RECORDS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
)


@dataclass(frozen=True)
class _Encoding:
    side: SidePlan
    value: Callable[[dict[str, Any]], bytes]


def main() -> int:
    options = arguments(
        "bench.input_format",
        "Measure the CPU time of the formats of values.",
        records="of each format",
    )
    encodings = {
        "JSON": _Encoding(_side(Format.JSON, ""), lambda row: json.dumps(row).encode()),
        "Avro": _Encoding(_side(Format.AVRO, json.dumps(_AVRO)), _avro_values()),
        "Protobuf": _Encoding(_side(Format.PROTOBUF, _PROTOBUF), _protobuf_values()),
    }
    access = RegistryAccess("http://localhost:8081")
    with spark_session() as spark:
        dataflows = {
            name: partial(
                decoded, _records(spark, encoding, options.records), encoding.side, access
            )
            for name, encoding in encodings.items()
        }
        rates = measure(dataflows, rows=options.records, rounds=options.rounds)
    sys.stdout.write(report(rates, subject="format", unit="records"))
    return 0


def _side(value_format: Format, schema: str) -> SidePlan:
    side = {
        "topic": "impressions",
        "format": value_format.value,
        "schema": _COLUMNS,
        "key": ["ad_id"],
        "event_time": "shown_at",
        "watermark_delay": "10 seconds",
    }
    document = {
        "name": "formats",
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "left": side,
        "right": {**side, "topic": "clicks", "format": "json"},
        "join": {"type": "inner", "match_window": {"before": "10 seconds", "after": "10 seconds"}},
        "output": {"topic": "joined", "columns": {"ad_id": "left.ad_id"}},
        "checkpoint": "/checkpoint",
        "on_bad_record": "drop",
    }
    if not value_format.has_registry:
        return join_plan(spec_from_yaml(yaml.safe_dump(document), {}), SQL, state_partitions=1).left
    document["schema_registry"] = {"url": "http://localhost:8081"}
    registered = RegisteredSchema(_SCHEMA_ID, value_format.upper(), schema)
    columns = value_schema(_COLUMNS, "left.schema", SQL)
    reader = ReaderSchema(value_format, "impressions-value", 1, registered, columns)
    spec = spec_from_yaml(yaml.safe_dump(document), {})
    return join_plan(spec, SQL, state_partitions=1, readers={"left": reader}).left


def _avro_values() -> Callable[[dict[str, Any]], bytes]:
    schema = fastavro.parse_schema(_AVRO)

    def value(row: dict[str, Any]) -> bytes:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, schema, row)
        return _framed(written.getvalue())

    return value


def _protobuf_values() -> Callable[[dict[str, Any]], bytes]:
    registered = RegisteredSchema(_SCHEMA_ID, "PROTOBUF", _PROTOBUF)
    message = GetMessageClass(protobuf._message(registered, (0,)))
    first_message = b"\0"
    return lambda row: _framed(first_message + message(**row).SerializeToString())


def _framed(payload: bytes) -> bytes:
    return b"\0" + _SCHEMA_ID.to_bytes(4, "big") + payload


def _records(spark: SparkSession, encoding: _Encoding, count: int) -> DataFrame:
    """Records as Spark's Kafka source reads them, in memory."""
    at = datetime.fromtimestamp(FIRST_EVENT_MS / 1000, UTC)
    rows = [
        (None, encoding.value(row), "impressions", 0, number, at)
        for number, row in enumerate(_rows(count))
    ]
    records = spark.createDataFrame(rows, _RECORDS).coalesce(1)
    records.persist().count()
    return records


def _rows(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {
            "ad_id": number,
            "shown_at": FIRST_EVENT_MS + number,
            "campaign": str(number % _CAMPAIGNS),
            "cost": float(number % 7),
            "user": f"u-{number}",
        }


if __name__ == "__main__":
    sys.exit(main())
