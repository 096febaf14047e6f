"""Random schemas, valid and invalid, compared between `validate` and Spark."""

import json
import random
from collections.abc import Iterator

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from job.errors import SpecError
from job.join_spec.value_schema import ValueSchema, value_schema
from job.sql.ddl import type_from
from tests.refusals import SCHEMA_MESSAGES
from tests.semantics.comparison import Result

_NAMES = [
    "a", "b", "Cc", "_d", "e1", "1f", "`g h`", "`i``j`", "value", "from", "select", "date", "map",
    "5", "1e5", "2L", "3d", "é", "k-l", "m.n", "``", "'o'", "left", "timestamp", "`é`", "A", "not",
    "comment", "interval", "array", "struct", "int", "decimal", "key", "primary", "constraint",
    "foreign", "unique", "check", "like", "index", "partition", "exclude", "period", "null",
]  # fmt: skip
_TYPES = [
    "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT",
    "REAL", "DOUBLE", "DEC", "NUMERIC", "DECIMAL", "DECIMAL(5)", "DECIMAL(5,2)", "DEC( 38 , 38 )",
    "NUMERIC(10,0)", "STRING", "BINARY", "DATE", "TIMESTAMP", "bigint", "Double", "string",
]  # fmt: skip
_OTHER_TYPES = [
    "TEXT", "BOOL", "NUMBER", "INT2", "INT4", "INT8", "INT64", "DOUBLE PRECISION", "FLOAT8",
    "INT[]", "ARRAY(INT)", "MAP(STRING, INT)", "STRUCT(a INT)", "DATETIME", "TIMESTAMPTZ",
    "TIMESTAMP_NTZ",
    "TIMESTAMP_LTZ", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITHOUT TIME ZONE",
    "TIMESTAMP WITH LOCAL TIME ZONE", "TIME", "TIME(3)", "VARIANT", "VOID", "NULL", "OBJECT",
    "CHAR(5)", "CHARACTER(5)", "VARCHAR(5)", "CHAR", "VARCHAR", "NVARCHAR(5)", "STRING(5)",
    "STRING COLLATE UTF8_BINARY", "STRING COLLATE UNICODE", "JSON", "UUID", "BLOB", "BYTEA",
    "VARBINARY(3)", "INT UNSIGNED", "UNSIGNED INT", "INT(5)", "BOOLEAN(1)", "FLOAT(5)",
    "DOUBLE(1,2)", "DECIMAL(50,2)", "DECIMAL(5,10)", "DECIMAL(5,2,1)", "DECIMAL()", "DECIMAL(*)",
    "DECIMAL(-1)", "DECIMAL(0,0)", "DECIMAL(5,-2)", "DECIMAL(1e1)", "INTERVAL", "INTERVAL DAY",
    "INTERVAL DAY TO SECOND", "INTERVAL YEAR TO MONTH", "INTERVAL SECOND TO DAY", "GEOMETRY(4326)",
    "GEOGRAPHY(4326)", "ARRAY", "MAP", "STRUCT", "ARRAY<>", "STRUCT<>", "MAP<INT>", "MAP<>",
    "ARRAY<INT, INT>", "STRUCT<INT>", "LIST<INT>", "ROW<a INT>", "FOO", "HLLSKETCH", "SERIAL",
    "MONEY", "BIT", "XML", "INET", "ENUM('a')", "NESTED<a INT>", "", "'INT'", "`INT`", "a.b", "5",
    "DATE32", "UINT8", "MEDIUMINT", "HUGEINT", "INT128", "NAME", "ANY", "UNKNOWN", "SET<INT>",
]  # fmt: skip
_BEHIND = [
    "NOT NULL", "COMMENT 'x'", "NOT NULL COMMENT 'it''s'", "COMMENT", "COMMENT 5", "NULL", "NOT",
    "DEFAULT 5", "PRIMARY KEY", "COLLATE UTF8_BINARY", "GENERATED ALWAYS AS (1)", "UNIQUE", "[]",
    "COMMENT 'a' NOT NULL", "COMMENT 'a' COMMENT 'b'", "AUTO_INCREMENT", ":", "()", "!",
    "CHECK (a > 1)", "REFERENCES t", "AS (1)", "/* x */", "-- x", "COMMENT 'a' 'b'", 'COMMENT "q"',
]  # fmt: skip


def schemas(seed: int) -> Iterator[str]:
    """Schemas, indefinitely. The first ones have one column, with each type and each suffix."""
    yield from (f"a {kind}" for kind in [*_TYPES, *_OTHER_TYPES])
    yield from (f"a INT {text}, b INT" for text in _BEHIND)
    yield from (f"{name} INT" for name in _NAMES)
    yield from (f"a STRUCT<{name}: INT>" for name in _NAMES)
    yield from [
        "",
        " ",
        "a",
        "a INT,",
        ",a INT",
        "a INT,, b INT",
        "(a INT)",
        "a INT; b INT",
        "a:INT",
    ]
    fuzz = _SchemaFuzz(seed)
    while True:
        yield fuzz.schema()


class _SchemaFuzz:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def schema(self) -> str:
        choose = self._random
        text = self._listed(choose.randint(1, 4), depth=2, joint=" ")
        return self._broken(text) if choose.random() < 0.4 else text

    def _listed(self, count: int, depth: int, joint: str) -> str:
        return ", ".join(
            f"{self._name(number)}{joint}{self._type(depth)}{self._behind()}"
            for number in range(count)
        )

    def _name(self, number: int) -> str:
        if self._random.random() < 0.03:
            return self._random.choice(_NAMES)
        return f"c{number}"

    def _behind(self) -> str:
        return f" {self._random.choice(_BEHIND)}" if self._random.random() < 0.04 else ""

    def _type(self, depth: int) -> str:
        choose = self._random
        if choose.random() < 0.04:
            return choose.choice(_OTHER_TYPES)
        if depth == 0 or choose.random() < 0.5:
            return choose.choice(_TYPES)
        name = choose.choice(["ARRAY", "MAP", "STRUCT"])
        if name == "ARRAY":
            return f"ARRAY<{self._type(depth - 1)}>"
        if name == "MAP":
            return f"MAP<{choose.choice(_TYPES)},{self._type(depth - 1)}>"
        joint = choose.choice([": ", " ", ":"])
        return f"STRUCT<{self._listed(choose.randint(1, 3), depth - 1, joint)}>"

    def _broken(self, text: str) -> str:
        """`text` with one word added or removed."""
        choose = self._random
        words = text.replace("<", " < ").replace(">", " > ").replace(",", " , ").split()
        at = choose.randrange(len(words))
        if choose.random() < 0.5:
            del words[at]
        else:
            words.insert(at, choose.choice([",", "<", ">", "(", ")", ":", "INT", "x", "NOT", "5"]))
        return " ".join(words)


def compare_schema(spark: SparkSession, text: str, result: Result) -> None:
    found = schema_of_spark(spark, text)
    try:
        schema = value_schema(text, "schema")
    except SpecError as error:
        refused = error.problems[0].message
        if isinstance(found, str):
            result.counts["schemas refused by both"] += 1
        elif any(message in refused for message in SCHEMA_MESSAGES):
            result.counts["schemas refused by name"] += 1
        else:
            result.differences.append(
                f"schema {text}\n  refused: {refused}; Spark: {found.simpleString()}"
            )
        return
    if isinstance(found, str):
        result.differences.append(f"schema {text}\n  accepted; Spark: {found}")
    elif _listed(schema) != _listed_of_spark(found):
        result.differences.append(
            f"schema {text}\n  is {_listed(schema)}; Spark: {_listed_of_spark(found)}"
        )
    else:
        result.counts["schemas accepted by both"] += 1


def schema_of_spark(spark: SparkSession, text: str) -> StructType | str:
    """The columns, or the error of Spark."""
    try:
        read = spark._jvm.org.apache.spark.sql.types.StructType.fromDDL(text)  # type: ignore[union-attr]
        return StructType.fromJson(json.loads(read.json()))
    except (PySparkException, Py4JJavaError) as error:
        return str(error).partition("\n")[0][:200]


def _listed(schema: ValueSchema) -> list[str]:
    return [_plain(f"{column.name} {type_from(column.type)}") for column in schema.columns]


def _listed_of_spark(schema: StructType) -> list[str]:
    return [_plain(f"{column.name} {column.dataType.simpleString()}") for column in schema.fields]


def _plain(column: str) -> str:
    return column.replace(" ", "").upper()
