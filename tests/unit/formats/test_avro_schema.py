"""The Avro schema of the output columns: a valid schema, or a refusal by name."""

import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from job.formats import avro
from job.formats.avro_schema import RULES, plain_schema, record_schema
from job.formats.schemas import RegisteredSchema
from job.sql.types import (
    SIMPLE_TYPES,
    STRING,
    VOID,
    SqlType,
    array_of,
    decimal_type,
    map_of,
    struct_of,
)
from tests.sql_worker import parse_type

DAY_TIME = SqlType("INTERVAL DAY TO SECOND")

NAMES = st.sampled_from(["a", "A", "b_1", "_c", "element", "tested"])
DECIMALS = st.integers(1, 38).flatmap(
    lambda digits: st.integers(0, digits).map(lambda scale: decimal_type(digits, scale))
)
TYPES = st.recursive(
    st.sampled_from(list(SIMPLE_TYPES.values())) | DECIMALS,
    lambda inner: (
        inner.map(array_of)
        | inner.map(lambda value: map_of(STRING, value))
        | st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(
            lambda fields: struct_of(fields.items())
        )
    ),
    max_leaves=6,
)
# The types that readers have for the others.
READ_AS = {"TINYINT": "INT", "SMALLINT": "INT"}


@given(st.dictionaries(NAMES, TYPES, min_size=1, max_size=4))
def test_every_type_of_a_column_has_a_valid_schema(columns: dict[str, SqlType]) -> None:
    assert [] == list(RULES.problems(columns.items()))
    text = record_schema("tested", columns.items())

    fastavro.parse_schema(json.loads(text))
    fields = avro.fields(RegisteredSchema(1, "AVRO", text))
    assert list(columns) == list(fields)
    for name, kind in columns.items():
        if not any(inner.holds("TIMESTAMP") for _, inner in kind.fields):
            expected = str(kind)
            for written, read in READ_AS.items():
                expected = expected.replace(written, read)
            assert expected == str(fields[name])


@given(st.dictionaries(NAMES, TYPES, min_size=1, max_size=4))
def test_columns_can_be_added_and_removed(columns: dict[str, SqlType]) -> None:
    first = RegisteredSchema(1, "AVRO", record_schema("tested", columns.items()))
    _, *fewer = columns.items()
    second = RegisteredSchema(2, "AVRO", record_schema("tested", [*fewer, ("added", STRING)]))

    assert [] == avro.record_differences(first, second)
    assert [] == avro.record_differences(second, first)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("two words", STRING, "is not a name in Avro"),
        ("größe", STRING, "is not a name in Avro"),
        ("1st", STRING, "is not a name in Avro"),
        ("x", VOID, "is a bare NULL"),
        ("x", DAY_TIME, "is INTERVAL DAY TO SECOND, which Avro does not have"),
        ("x", array_of(DAY_TIME), "is INTERVAL DAY TO SECOND, which Avro does not have"),
        ("x", map_of(parse_type("INT"), STRING), "has keys of type INT"),
        ("x", struct_of([("a b", STRING)]), "has the field `a b`, which is not a name in Avro"),
        ("x", struct_of([("a", STRING), ("a", STRING)]), "has several fields `a`"),
    ],
)
def test_column_that_avro_cannot_hold_is_refused_by_name(
    name: str, kind: SqlType, message: str
) -> None:
    [(column, problem)] = RULES.problems([("n", STRING), (name, kind)])

    assert name == column
    assert problem.startswith(message)


@pytest.mark.parametrize("kind", [*SIMPLE_TYPES.values(), array_of(struct_of([("a", STRING)]))])
def test_value_that_is_not_a_struct_has_a_valid_schema(kind: SqlType) -> None:
    fastavro.parse_schema(json.loads(plain_schema(kind)))


def test_timestamp_keeps_microseconds_and_decimal_its_digits() -> None:
    columns = {"at": parse_type("TIMESTAMP"), "money": parse_type("DECIMAL(10, 2)")}

    fields: Any = json.loads(record_schema("tested", columns.items()))["fields"]

    assert [
        {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    ] == [field["type"][1] for field in fields]
