"""Results in Avro, as Spark writes them and fastavro reads them."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from job.encoding.avro_column import avro_column
from job.evaluation.sql_types import parse_type
from job.formats.avro_schema import avro_schema
from job.formats.schemas import OutputSchema
from job.join_spec.value_format import Format

SCHEMA_ID = 0x01020304
AT = datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC)
# Type, SQL of a value, and the value that a consumer reads.
COLUMNS: dict[str, tuple[str, str, Any]] = {
    "flag": ("BOOLEAN", "true", True),
    "tiny": ("TINYINT", "-128Y", -128),
    "small": ("SMALLINT", "32767S", 32767),
    "number": ("INT", "-2147483648", -(2**31)),
    "big": ("BIGINT", "9223372036854775807L", 2**63 - 1),
    "single": ("FLOAT", "cast(1.5 AS FLOAT)", 1.5),
    "double": ("DOUBLE", "0.1D", 0.1),
    "text": ("STRING", "'Grüße'", "Grüße"),
    "bytes": ("BINARY", "X'00FF'", b"\x00\xff"),
    "day": ("DATE", "DATE'1969-12-31'", date(1969, 12, 31)),
    "at": ("TIMESTAMP", "TIMESTAMP'2023-11-14 22:13:20.123456'", AT),
    "small_money": ("DECIMAL(10, 2)", "-12.50BD", Decimal("-12.50")),
    "money": (
        "DECIMAL(38, 3)",
        "cast('12345678901234567890123456789012345.678' AS DECIMAL(38, 3))",
        Decimal("12345678901234567890123456789012345.678"),
    ),
    "list": ("ARRAY<TIMESTAMP>", "array(TIMESTAMP'2023-11-14 22:13:20.123456', NULL)", [AT, None]),
    "empty": ("ARRAY<INT>", "cast(array() AS ARRAY<INT>)", []),
    "map": ("MAP<STRING, BIGINT>", "map('a', 1L, 'b', NULL)", {"a": 1, "b": None}),
    "nested": (
        "STRUCT<a: INT, b: STRUCT<a: ARRAY<STRUCT<c: STRING>>>>",
        "named_struct('a', 1, 'b', named_struct('a', array(named_struct('c', 'x'))))",
        {"a": 1, "b": {"a": [{"c": "x"}]}},
    ),
}


def schema_of(**types: str) -> OutputSchema:
    text = avro_schema("tested", {name: parse_type(kind) for name, kind in types.items()})
    return OutputSchema(Format.AVRO, "s", True, text, SCHEMA_ID)


def encoded(rows: DataFrame, schema: OutputSchema, *names: str) -> list[bytes]:
    column = avro_column(rows, [F.col(name) for name in names], schema)
    return [bytes(row.value) for row in rows.select(column.alias("value")).collect()]


def read(value: bytes, schema: OutputSchema) -> Any:
    source = io.BytesIO(value[5:])
    row = fastavro.schemaless_reader(source, json.loads(schema.text), None)
    assert b"" == source.read()
    return row


@pytest.fixture(params=["NO_CODEGEN", "CODEGEN_ONLY"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Any:
    name = "spark.sql.codegen.factoryMode"
    before = spark.conf.get(name)
    spark.conf.set(name, request.param)
    yield spark
    spark.conf.set(name, before)


def test_each_type_is_read_as_it_was_written(session: SparkSession) -> None:
    schema = schema_of(**{name: kind for name, (kind, _, _) in COLUMNS.items()})
    values = [f"{sql} AS {name}" for name, (_, sql, _) in COLUMNS.items()]
    nulls = [f"cast(NULL AS {kind}) AS {name}" for name, (kind, _, _) in COLUMNS.items()]
    # A repartition keeps the optimizer from computing the values on the driver.
    rows = session.range(1).selectExpr(*values).union(session.range(1).selectExpr(*nulls))

    written = encoded(rows.repartition(1), schema, *COLUMNS)

    assert {bytes([0, 1, 2, 3, 4])} == {value[:5] for value in written}
    whole = {name: value for name, (_, _, value) in COLUMNS.items()}
    assert [whole, dict.fromkeys(COLUMNS)] == sorted(
        (read(value, schema) for value in written), key=lambda row: row["flag"] is None
    )


def test_text_that_is_no_utf_8_is_written_as_text(spark: SparkSession) -> None:
    schema = schema_of(text="STRING")

    [value] = encoded(spark.sql("SELECT cast(X'41FF' AS STRING) AS text"), schema, "text")

    assert {"text": "A\N{REPLACEMENT CHARACTER}"} == read(value, schema)


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        ("BIGINT", "1"),
        ("TIMESTAMP", "1L"),
        ("BIGINT", "TIMESTAMP'2023-11-14 22:13:20'"),
        ("DECIMAL(10, 2)", "cast(1 AS DECIMAL(10, 3))"),
        ("STRING", "X'00'"),
        ("STRUCT<a: INT, b: INT>", "named_struct('b', 1, 'a', 2)"),
    ],
)
def test_values_of_another_type_than_the_schema_are_refused(
    spark: SparkSession, kind: str, sql: str
) -> None:
    with pytest.raises(Exception, match="is not Avro's"):
        encoded(spark.sql(f"SELECT {sql} AS x"), schema_of(x=kind), "x")
