"""The job and the simulator decode a record alike: the same columns or the same reason."""

from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from job.dataflow.sides import decoded
from job.plan.plan import JoinPlan
from job.plan.side_plan import SidePlan
from job.semantics.input_records import InputRecord
from job.semantics.simulated_side import BadRecord, OtherRecord, SideReader
from tests.semantics.crafted_records import NESTED, SCALARS, nested_records, scalar_records
from tests.sql_worker import ROWS
from tests.unit.specs import plan

RECORDS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)

OPTIONS = "map('timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\", 'ignoreNullFields', 'false')"


def of_job(spark: SparkSession, side: SidePlan, values: list[bytes | None]) -> list[object]:
    """Reason of each record, or its event time in microseconds and its columns as output JSON."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [(None, value, "t", 0, offset, at, None) for offset, value in enumerate(values)]
    columns = ", ".join(f"'{name}', `left_{name}`" for name in side.schema.names)
    found = decoded(spark.createDataFrame(rows, RECORDS), side, None).selectExpr(
        "reason",
        f"unix_micros(`{side.event_time_column}`)",
        f"to_json(named_struct({columns}), {OPTIONS})",
    )
    return [reason or (micros, micros and text) for reason, micros, text in found.collect()]


def of_simulator(made: JoinPlan, values: list[bytes | None]) -> list[object]:
    """The same, with the expressions of a process without a Spark session."""
    records = [InputRecord(value, offset) for offset, value in enumerate(values)]
    reader = SideReader(made, "left", ROWS)
    columns = ", ".join(f"'{name}', `left_{name}`" for name in made.left.schema.names)
    text = f"to_json(named_struct({columns}), {OPTIONS})"
    other = SideReader(made, "right", ROWS)
    program = ROWS.program((reader.program, other.program), [[f"{text} AS text"]], ["text"])
    found: list[object] = []
    for row in reader.read(records):
        if isinstance(row, BadRecord):
            found.append(row.reason)
        elif isinstance(row, OtherRecord):
            found.append((None, None))
        else:
            [answer] = ROWS.run_pairs(program, [(row.number, None)], (reader.store, other.store))
            found.append((row.event_time_us, answer["text"]))
    return found


def test_job_and_simulator_read_the_same_rows_of_envelopes(spark: SparkSession) -> None:
    rows = [value for value in scalar_records() if value is not None]
    values = [
        *(b'{"op":"c","source":{"ts_ms":1},"after":' + row + b"}" for row in rows),
        *(b'{"payload":{"op":"d","before":' + row + b"}}" for row in rows),
        *rows,
        None,
    ]
    made = plan(
        left__envelope="debezium",
        left__operations=["create", "delete"],
        left__filter="i IS NULL OR i > 0",
        left__schema=SCALARS,
        left__columns={"fails": "1 / (i - 1)", "op": "upper(record_operation)"},
        left__key=["s"],
        left__event_time="coalesce(t, record_source_timestamp)",
        left__max_event_time_ahead="10000000 days",
        right__key=["user"],
        output__columns={"s": "left.s"},
    )

    job, simulated = of_job(spark, made.left, values), of_simulator(made, values)

    assert job == simulated
    assert {"schema_mismatch", "malformed_json", "expression_failed"} < set(map(str, job))


@pytest.mark.parametrize(
    ("schema", "values"),
    [(SCALARS, scalar_records()), (NESTED, nested_records())],
    ids=["scalars", "nested"],
)
def test_job_and_simulator_read_the_same_columns_or_the_same_reason(
    spark: SparkSession, schema: str, values: list[bytes | None]
) -> None:
    made = plan(
        left__schema=schema,
        left__key=["s"],
        left__event_time="t",
        left__max_event_time_ahead="10000000 days",
        right__key=["user"],
        output__columns={"s": "left.s"},
    )

    read = zip(values, of_job(spark, made.left, values), of_simulator(made, values), strict=True)

    differ = [
        (value and value[:80], job, simulated) for value, job, simulated in read if job != simulated
    ]
    assert [] == differ
    assert len(values) > 50
