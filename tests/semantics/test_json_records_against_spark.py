"""The job and the simulator decode a record alike: the same columns or the same reason."""

from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from job.dataflow.dataflow import decoded
from job.plan.plan import SidePlan
from job.semantics.json_records import InputRecord, RecordDecoder
from job.semantics.output_json import object_text
from tests.semantics.crafted_records import NESTED, SCALARS, nested_records, scalar_records
from tests.unit.specs import plan

RECORDS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def of_job(spark: SparkSession, side: SidePlan, values: list[bytes | None]) -> list[object]:
    """Reason of each record, or its event time in microseconds and its columns as output JSON."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [(None, value, "t", 0, offset, at, None) for offset, value in enumerate(values)]
    columns = ", ".join(f"'{name}', `left_{name}`" for name in side.schema.names)
    options = (
        "map('timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\", 'ignoreNullFields', 'false')"
    )
    found = decoded(spark.createDataFrame(rows, RECORDS), side, None).selectExpr(
        "reason", "unix_micros(left_t)", f"to_json(named_struct({columns}), {options})"
    )
    return [reason or (micros, text) for reason, micros, text in found.collect()]


def of_simulator(side: SidePlan, values: list[bytes | None]) -> list[object]:
    decoder = RecordDecoder(side)
    columns = decoder.columns[: len(side.schema.columns)]
    found: list[object] = []
    for value in values:
        row = decoder.decode(InputRecord(value, offset=0))
        if isinstance(row, str):
            found.append(row)
        else:
            found.append((row.event_time_us, object_text(columns, row.values[: len(columns)])))
    return found


@pytest.mark.parametrize(
    ("schema", "values"),
    [(SCALARS, scalar_records()), (NESTED, nested_records())],
    ids=["scalars", "nested"],
)
def test_job_and_simulator_read_the_same_columns_or_the_same_reason(
    spark: SparkSession, schema: str, values: list[bytes | None]
) -> None:
    side = plan(
        left__schema=schema,
        left__key=["s"],
        left__event_time="t",
        left__max_event_time_ahead="10000000 days",
        right__key=["user"],
        output__columns={"s": "left.s"},
    ).left

    read = zip(values, of_job(spark, side, values), of_simulator(side, values), strict=True)

    differ = [
        (value and value[:80], job, simulated) for value, job, simulated in read if job != simulated
    ]
    assert [] == differ
    assert len(values) > 50
