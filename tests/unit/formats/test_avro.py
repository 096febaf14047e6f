"""Avro's types as columns, and its values by schema resolution."""

from decimal import Decimal
from typing import Any

import pytest

from job.formats import avro
from job.formats.schemas import IncompatibleError, RegisteredSchema, UnreadableError
from job.spec.value_schema import Column
from job.sql.types import BIGINT, TIMESTAMP
from tests.unit.formats import written
from tests.unit.formats.written import as_text, avro_schema, field, reader, record

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
INNER = record(field("city", "string"), name="shop.City")


def decimal(precision: int, scale: int = 2) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("boolean", "BOOLEAN"),
        ("int", "INT"),
        ("long", "BIGINT"),
        ("float", "FLOAT"),
        ("double", "DOUBLE"),
        ("string", "STRING"),
        ({"type": "string", "logicalType": "uuid"}, "STRING"),
        ("bytes", "BINARY"),
        ({"type": "fixed", "name": "f", "size": 4}, "BINARY"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "STRING"),
        (decimal(10), "DECIMAL(10,2)"),
        ({"type": "bytes", "logicalType": "decimal"}, "BINARY"),
        ({"type": "string", "logicalType": "decimal", "precision": 4}, "STRING"),
        ({"type": "int", "logicalType": "date"}, "DATE"),
        ({"type": "int", "logicalType": "time-millis"}, "INT"),
        (MILLIS, "TIMESTAMP"),
        (MICROS, "TIMESTAMP"),
        (["null", "long"], "BIGINT"),
        (["string", "null"], "STRING"),
        ({"type": "array", "items": ["null", "int"]}, "ARRAY<INT>"),
        ({"type": "map", "values": "double"}, "MAP<STRING, DOUBLE>"),
        (INNER, "STRUCT<city: STRING>"),
    ],
)
def test_type_becomes_a_column(kind: Any, expected: str) -> None:
    assert {"x": expected} == as_text(avro.fields(avro_schema(record(field("x", kind)))))


@pytest.mark.parametrize(
    "kind",
    [
        "null",
        ["int", "string"],
        ["null", "int", "string"],
        decimal(39),
        {"type": "array", "items": MILLIS},
        record(field("at", MICROS), name="shop.Deep"),
        record(field("next", ["null", "shop.Node"]), name="shop.Node"),
    ],
)
def test_type_without_a_sql_type_is_reported(kind: Any) -> None:
    assert {"x": None} == avro.fields(avro_schema(record(field("x", kind))))


def test_schema_of_no_record_is_refused() -> None:
    with pytest.raises(IncompatibleError, match="schema 1 is not an Avro record"):
        avro.fields(RegisteredSchema(1, "AVRO", '"string"'))


def test_named_type_of_another_schema_is_found_by_reference() -> None:
    import json

    mentions = RegisteredSchema(
        1, "AVRO", json.dumps(record(field("x", "shop.City"))), (("City", json.dumps(INNER)),)
    )

    assert {"x": "STRUCT<city: STRING>"} == as_text(avro.fields(mentions))


def test_every_type_is_read_as_it_was_written() -> None:
    schema = record(
        field("n", "long"),
        field("cost", decimal(10)),
        field("kind", {"type": "enum", "name": "e", "symbols": ["A", "B"]}),
        field("ms", MILLIS),
        field("us", ["null", MICROS]),
        field("day", {"type": "int", "logicalType": "date"}),
        field("plain", "long"),
        field("cities", {"type": "array", "items": INNER}),
        field("home", "shop.City"),
    )
    declared = [Column("plain", TIMESTAMP), Column("ms", TIMESTAMP), Column("us", TIMESTAMP)]
    row = {
        "n": 2**62, "cost": Decimal("1.25"), "kind": "B", "ms": 1_700_000_000_123,
        "us": 1_700_000_000_123_456, "day": 19_000, "plain": 5, "cities": [{"city": "Bonn"}],
        "home": {"city": "Ulm"},
    }  # fmt: skip
    value = written.avro({**schema, "fields": avro._bare(schema)["fields"]}, **row)

    decoded = avro.decoding(avro_schema(schema), reader(avro_schema(schema), *declared))(value)

    micros = {"ms": 1_700_000_000_123_000, "us": 1_700_000_000_123_456, "plain": 5_000}
    assert {**row, **micros} == decoded


OLD = record(field("n", "int"), field("at", MILLIS), field("gone", "string"))
NEW = record(
    field("n", "long"), field("at", MILLIS), field("new", ["null", "string"], default=None)
)


def test_value_of_an_older_schema_is_read_with_defaults_and_promotions() -> None:
    old, new = avro_schema(OLD, 1), reader(avro_schema(NEW, 2))

    decoded = avro.decoding(old, new)(written.avro(OLD, n=7, at=1_000, gone="x"))

    assert {"n": 7, "at": 1_000_000, "new": None} == decoded
    assert [] == avro.differences(old, new)


def test_value_of_a_newer_schema_is_read_without_what_was_added() -> None:
    newer = record(*NEW["fields"], field("more", "string"), name=NEW["name"])

    decoded = avro.decoding(avro_schema(newer, 3), reader(avro_schema(NEW, 2)))(
        written.avro(newer, n=7, at=1, new="x", more="y")
    )

    assert {"n": 7, "at": 1_000, "new": "x"} == decoded


@pytest.mark.parametrize(
    ("kind", "read", "why"),
    [
        ("string", "long", "field x: string cannot be read as long"),
        ("long", "int", "field x: long cannot be read as int"),
        (MICROS, MILLIS, "field x: timestamp-micros cannot be read as timestamp-millis"),
        ("long", MILLIS, "field x: long cannot be read as timestamp-millis"),
        (decimal(10, 3), decimal(10, 2), "field x: decimal cannot be read as decimal"),
        (["null", "string"], ["null", "long"], "field x: string cannot be read as long"),
        (record(name="a.P"), record(name="b.Q"), "field x: record a.P cannot be read as b.Q"),
    ],
)
def test_incompatible_schemas_are_reported_with_the_field(kind: Any, read: Any, why: str) -> None:
    old = avro_schema(record(field("x", kind), field("y", "int")))
    new = reader(avro_schema(record(field("x", read), field("y", "int")), 2), Column("x", BIGINT))

    assert why in [each.message for each in avro.differences(old, new)]


def test_field_that_is_missing_without_default_makes_every_value_unreadable() -> None:
    old, new = avro_schema(OLD), record(field("z", "int"))

    with pytest.raises(IncompatibleError, match="field z: is missing and has no default"):
        avro.decoding(old, reader(avro_schema(new, 2)))


def test_difference_in_a_field_that_is_not_taken_does_not_count() -> None:
    new = record(field("n", "long"), field("gone", "int"), name=OLD["name"])
    wanted = reader(avro_schema(new, 2), Column("n", BIGINT))

    assert {"n": 7} == avro.decoding(avro_schema(OLD), wanted)(
        written.avro(OLD, n=7, at=1, gone="x")
    )


def test_null_where_the_reader_wants_a_value_depends_on_the_value() -> None:
    old, new = record(field("x", ["null", "long"])), record(field("x", "long"))
    decode = avro.decoding(avro_schema(old), reader(avro_schema(new, 2)))

    assert {"x": 5} == decode(written.avro(old, x=5))
    with pytest.raises(IncompatibleError):
        decode(written.avro(old, x=None))
    differences = avro.differences(avro_schema(old), reader(avro_schema(new, 2)))
    assert [False] == [each.is_certain for each in differences]


@pytest.mark.parametrize("garbage", [b"", b"\xff\xff\xff\xff\xff\xff", b"\x02\x02\x0a\xff\xfe"])
def test_garbage_is_unreadable(garbage: bytes) -> None:
    with pytest.raises(UnreadableError, match="not Avro of that schema"):
        avro.decoding(avro_schema(OLD), reader(avro_schema(OLD)))(garbage)


def test_bytes_behind_the_value_are_garbage() -> None:
    value = written.avro(OLD, n=7, at=1, gone="x") + b"more"

    with pytest.raises(UnreadableError, match="4 bytes remain"):
        avro.decoding(avro_schema(OLD), reader(avro_schema(OLD)))(value)


def test_time_beyond_any_year_does_not_overflow() -> None:
    value = written.avro({**OLD, "fields": avro._bare(OLD)["fields"]}, n=7, at=2**62, gone="x")

    decoded = avro.decoding(avro_schema(OLD), reader(avro_schema(OLD)))(value)

    assert 2**63 - 1 == decoded["at"]
