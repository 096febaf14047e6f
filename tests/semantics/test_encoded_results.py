"""Results in Avro and Protobuf, written by Spark, read by fastavro and Google's library."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from job.encoding.encoded_column import encoded_column
from job.formats import avro_schema, proto_schema
from job.formats.schemas import OutputSchema
from job.spec.value_format import Format
from tests import encoded_values
from tests.semantics.spark_runner import conf
from tests.sql_worker import parse_type

SCHEMA_ID = 0x01020304
AT = datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC)
EARLY = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
# Type, SQL of a value, and the value that a consumer reads.
BOTH: dict[str, tuple[str, str, Any]] = {
    "flag": ("BOOLEAN", "true", True),
    "tiny": ("TINYINT", "-128Y", -128),
    "small": ("SMALLINT", "32767S", 32767),
    "number": ("INT", "-2147483648", -(2**31)),
    "big": ("BIGINT", "9223372036854775807L", 2**63 - 1),
    "single": ("FLOAT", "cast(1.5 AS FLOAT)", 1.5),
    "double": ("DOUBLE", "0.1D", 0.1),
    "text": ("STRING", "'Grüße'", "Grüße"),
    "bytes": ("BINARY", "X'00FF'", b"\x00\xff"),
    "at": ("TIMESTAMP", "TIMESTAMP'2023-11-14 22:13:20.123456'", AT),
    "early": ("TIMESTAMP", "TIMESTAMP'1969-12-31 23:59:59.999999'", EARLY),
    "zero": ("BIGINT", "0L", 0),
    "no_text": ("STRING", "''", ""),
    "empty": ("ARRAY<INT>", "cast(array() AS ARRAY<INT>)", []),
    "structs": (
        "ARRAY<STRUCT<c: STRING, n: INT>>",
        "array(named_struct('c', 'x', 'n', 1), named_struct('c', cast(NULL AS STRING), 'n', -1))",
        [{"c": "x", "n": 1}, {"c": None, "n": -1}],
    ),
    "long_text": ("STRING", "repeat('x', 1000)", "x" * 1000),
}
AVRO: dict[str, tuple[str, str, Any]] = {
    "day": ("DATE", "DATE'1969-12-31'", date(1969, 12, 31)),
    "small_money": ("DECIMAL(10, 2)", "-12.50BD", Decimal("-12.50")),
    "money": (
        "DECIMAL(38, 3)",
        "cast('12345678901234567890123456789012345.678' AS DECIMAL(38, 3))",
        Decimal("12345678901234567890123456789012345.678"),
    ),
    "list": ("ARRAY<TIMESTAMP>", "array(TIMESTAMP'2023-11-14 22:13:20.123456', NULL)", [AT, None]),
    "map": ("MAP<STRING, BIGINT>", "map('a', 1L, 'b', NULL)", {"a": 1, "b": None}),
    "nested": (
        "STRUCT<a: INT, b: STRUCT<a: ARRAY<STRUCT<c: STRING>>>>",
        "named_struct('a', 1, 'b', named_struct('a', array(named_struct('c', 'x'))))",
        {"a": 1, "b": {"a": [{"c": "x"}]}},
    ),
}
# A null within an array or map is the default of its type.
PROTOBUF: dict[str, tuple[str, str, Any]] = {
    "list": (
        "ARRAY<TIMESTAMP>",
        "array(TIMESTAMP'2023-11-14 22:13:20.123456', NULL)",
        [AT, datetime.fromtimestamp(0, UTC)],
    ),
    "numbers": ("ARRAY<BIGINT>", "array(1L, NULL, -1L)", [1, 0, -1]),
    "doubles": ("ARRAY<DOUBLE>", "array(0.5D, NULL)", [0.5, 0.0]),
    "singles": ("ARRAY<FLOAT>", "array(cast(0.5 AS FLOAT), NULL)", [0.5, 0.0]),
    "flags": ("ARRAY<BOOLEAN>", "array(true, NULL)", [True, False]),
    "texts": ("ARRAY<STRING>", "array('x', NULL)", ["x", ""]),
    "map": ("MAP<STRING, BIGINT>", "map('a', 1L, 'b', NULL)", {"a": 1, "b": 0}),
    "named": (
        "MAP<STRING, STRUCT<at: TIMESTAMP>>",
        "map('a', named_struct('at', TIMESTAMP'1969-12-31 23:59:59.999999'))",
        {"a": {"at": EARLY}},
    ),
    "nested": (
        "STRUCT<a: INT, b: STRUCT<a: ARRAY<STRUCT<c: STRING>>>>",
        "named_struct('a', 1, 'b', named_struct('a', array(named_struct('c', 'x'))))",
        {"a": 1, "b": {"a": [{"c": "x"}]}},
    ),
}
# A null array or map is empty.
EMPTY: dict[str, Any] = {"ARRAY": [], "MAP": {}}


def schema_of(used: Format, **types: str) -> OutputSchema:
    columns = tuple((name, parse_type(kind)) for name, kind in types.items())
    implementation = avro_schema if used is Format.AVRO else proto_schema
    assert [] == list(implementation.RULES.problems(columns))
    text = implementation.record_schema("tested", columns)
    return OutputSchema(used, "s", True, text, columns, id=SCHEMA_ID)


def encoded(rows: DataFrame, schema: OutputSchema) -> list[bytes]:
    column = encoded_column(rows, [F.col(name) for name, _ in schema.columns], schema)
    return [bytes(row.value) for row in rows.select(column.alias("value")).collect()]


def read(value: bytes, schema: OutputSchema) -> Any:
    assert SCHEMA_ID == encoded_values.schema_id(value)
    return encoded_values.read(value, schema.format, schema.text)


@pytest.fixture(params=["NO_CODEGEN", "CODEGEN_ONLY"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    with conf(spark, {"spark.sql.codegen.factoryMode": request.param}):
        yield spark


@pytest.mark.parametrize(
    ("used", "columns"),
    [(Format.AVRO, {**BOTH, **AVRO}), (Format.PROTOBUF, {**BOTH, **PROTOBUF})],
    ids=["avro", "protobuf"],
)
def test_each_type_is_read_as_it_was_written(
    session: SparkSession, used: Format, columns: dict[str, tuple[str, str, Any]]
) -> None:
    schema = schema_of(used, **{name: kind for name, (kind, _, _) in columns.items()})
    values = [f"{sql} AS {name}" for name, (_, sql, _) in columns.items()]
    nulls = [f"cast(NULL AS {kind}) AS {name}" for name, (kind, _, _) in columns.items()]
    # A repartition keeps the optimizer from computing the values on the driver.
    # Two rows with values: an encoder keeps its buffers.
    rows = session.range(2).selectExpr(*values).union(session.range(1).selectExpr(*nulls))

    written = encoded(rows.repartition(1), schema)

    whole = {name: value for name, (_, _, value) in columns.items()}
    empty = EMPTY if used is Format.PROTOBUF else {}
    unset = {name: empty.get(kind.partition("<")[0]) for name, (kind, _, _) in columns.items()}
    assert [whole, whole, unset] == sorted(
        (read(value, schema) for value in written), key=lambda row: row["flag"] is None
    )


@pytest.mark.parametrize("used", [Format.AVRO, Format.PROTOBUF])
def test_text_that_is_not_utf_8_is_written_as_text(spark: SparkSession, used: Format) -> None:
    schema = schema_of(used, text="STRING")

    [value] = encoded(spark.sql("SELECT cast(X'41FF' AS STRING) AS text"), schema)

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
    schema = schema_of(Format.AVRO, x=kind)

    with pytest.raises(ValueError, match="column x is"):
        encoded(spark.sql(f"SELECT {sql} AS x"), schema)
