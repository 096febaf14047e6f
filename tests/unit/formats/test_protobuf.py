"""Protobuf's types as columns, and its values by field numbers."""

import pytest

from job.formats import protobuf
from job.formats.schemas import IncompatibleError, RegisteredSchema, UnreadableError
from job.spec.value_schema import Column
from job.sql.types import STRING, TIMESTAMP
from tests.unit.formats import written
from tests.unit.formats.written import CLICK, as_text, message, proto_schema, reader

WELL_KNOWN = 'import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";'


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("bool", "BOOLEAN"),
        ("int32", "INT"),
        ("sint32", "INT"),
        ("sfixed32", "INT"),
        ("int64", "BIGINT"),
        ("sint64", "BIGINT"),
        ("sfixed64", "BIGINT"),
        ("uint32", "BIGINT"),
        ("fixed32", "BIGINT"),
        ("uint64", "DECIMAL(20,0)"),
        ("fixed64", "DECIMAL(20,0)"),
        ("float", "FLOAT"),
        ("double", "DOUBLE"),
        ("string", "STRING"),
        ("bytes", "BINARY"),
        ("E", "STRING"),
        ("google.protobuf.Timestamp", "TIMESTAMP"),
        ("google.protobuf.Int64Value", "BIGINT"),
        ("repeated int32", "ARRAY<INT>"),
        ("map<string, double>", "MAP<STRING, DOUBLE>"),
        ("In", "STRUCT<city: STRING>"),
    ],
)
def test_type_becomes_a_column(kind: str, expected: str) -> None:
    inner = "enum E { A = 0; } message In { string city = 1; }"

    found = as_text(
        protobuf.fields(proto_schema(message(f"{inner} {kind} x = 1;", more=WELL_KNOWN)))
    )

    assert {"x": expected} == found


@pytest.mark.parametrize(
    "kind",
    [
        "map<int32, string>",
        "repeated google.protobuf.Timestamp",
        "M",
        "Empty",
        "Deep",
    ],
)
def test_type_without_a_sql_type_is_reported(kind: str) -> None:
    inner = "message Empty {} message Deep { google.protobuf.Timestamp at = 1; }"

    found = as_text(
        protobuf.fields(proto_schema(message(f"{inner} {kind} x = 1;", more=WELL_KNOWN)))
    )

    assert {"x": None} == found


def test_schema_that_does_not_compile_is_refused() -> None:
    with pytest.raises(IncompatibleError, match="schema 1 cannot be compiled"):
        protobuf.fields(proto_schema("no proto"))


def test_imported_file_is_found_by_reference() -> None:
    city = 'syntax = "proto3"; package geo; message City { string name = 1; }'
    text = message("geo.City x = 1;", more='import "geo/city.proto";')

    found = as_text(
        protobuf.fields(RegisteredSchema(1, "PROTOBUF", text, (("geo/city.proto", city),)))
    )

    assert {"x": "STRUCT<name: STRING>"} == found


def test_file_outside_the_folder_is_refused() -> None:
    with pytest.raises(IncompatibleError, match="not a relative path"):
        protobuf.fields(RegisteredSchema(1, "PROTOBUF", CLICK, (("../evil.proto", CLICK),)))


def test_every_type_is_read_as_it_was_written() -> None:
    text = message(
        "enum E { A = 0; B = 1; } E kind = 1; uint64 big = 2; repeated int32 many = 3;",
        "map<string, int32> counts = 4; google.protobuf.Timestamp at = 5; int64 millis = 6;",
        "optional int32 maybe = 7; google.protobuf.Int64Value wrapped = 8; string text = 9;",
        more=WELL_KNOWN,
    )
    fields = {"big": 2**64 - 1, "many": [1, 2], "counts": {"a": 1}, "at": 1_000_001, "millis": 5}
    value = written.proto(text, kind=1, **fields)
    names = ("kind", "big", "many", "counts", "maybe", "wrapped", "text")
    times = [Column(name, TIMESTAMP) for name in ("at", "millis")]
    wanted = reader(proto_schema(text), *(Column(name, STRING) for name in names), *times)

    decoded = protobuf.decoding(proto_schema(text), wanted)(value)

    # proto3 has no word for a string that is not there.
    absent = {"maybe": None, "wrapped": None, "text": ""}
    assert {**fields, "kind": "B", "millis": 5_000, **absent} == decoded


def test_number_of_an_enum_without_name_is_shown() -> None:
    newer = message("enum E { A = 0; B = 7; } E kind = 1;")
    text = message("enum E { A = 0; } E kind = 1;")

    decode = protobuf.decoding(proto_schema(newer, 2), reader(proto_schema(text)))

    assert {"kind": "7"} == decode(written.proto(newer, kind=7))


def test_values_of_other_schemas_are_read_by_field_numbers() -> None:
    newer = message("int64 renamed = 1; string more = 9;")
    text = message("int64 n = 1; optional string gone = 2;")

    decode = protobuf.decoding(proto_schema(newer, 2), reader(proto_schema(text)))

    assert {"n": 5, "gone": None} == decode(written.proto(newer, renamed=5, more="x"))


@pytest.mark.parametrize(
    ("kind", "read", "why"),
    [
        ("string", "int64", r"field x \(1\): string cannot be read as int64"),
        ("int64", "int32", r"field x \(1\): int64 cannot be read as int32"),
        ("sint64", "int64", r"field x \(1\): sint64 cannot be read as int64"),
        ("repeated int32", "int32", r"field x \(1\): repeated int32 cannot be read as int32"),
        ("In", "Other", r"field x\.y \(1\): string cannot be read as int32"),
    ],
)
def test_incompatible_schemas_are_reported_with_the_field(kind: str, read: str, why: str) -> None:
    inner = "message In { string y = 1; } message Other { int32 y = 1; }"
    old, new = (message(f"{inner} {each} x = 1;") for each in (kind, read))
    decode = protobuf.decoding(proto_schema(old), reader(proto_schema(new, 2)))

    with pytest.raises(IncompatibleError, match=why):
        decode(written.proto(old))


def test_narrower_number_is_read_as_the_wider() -> None:
    old, new = message("int32 x = 1;"), message("int64 x = 1;")

    decode = protobuf.decoding(proto_schema(old), reader(proto_schema(new, 2)))

    assert {"x": -5} == decode(written.proto(old, x=-5))


def test_another_message_of_the_file_is_not_taken_for_the_first() -> None:
    text = message("int64 n = 1;") + " message Other { int64 n = 1; message In { int64 n = 1; } }"
    decode = protobuf.decoding(proto_schema(text), reader(proto_schema(text)))

    assert {"n": 5} == decode(written.proto(text, n=5))
    with pytest.raises(IncompatibleError, match="is a Other, expected M"):
        decode(written.proto(text, of=(1,), n=5))
    with pytest.raises(IncompatibleError, match=r"is a Other\.In, expected M"):
        decode(written.proto(text, of=(1, 0), n=5))


@pytest.mark.parametrize(
    ("payload", "expected"),
    [(b"\0x", ((0,), 1)), (b"\x02\x02x", ((1,), 2)), (b"\x04\x02\x80\x01x", ((1, 64), 4))],
)
def test_message_indexes_are_zigzag_varints(
    payload: bytes, expected: tuple[tuple[int, ...], int]
) -> None:
    assert expected == protobuf.message_indexes(payload)


@pytest.mark.parametrize("garbage", [b"", b"\x80", b"\x7e\x02", b"\0\xff\xff", b"\0hello world"])
def test_garbage_is_unreadable(garbage: bytes) -> None:
    decode = protobuf.decoding(proto_schema(CLICK), reader(proto_schema(CLICK)))

    with pytest.raises(UnreadableError):
        decode(garbage)


@pytest.mark.parametrize("indexes", [b"\x02\x01", b"\x02\x08"])
def test_message_that_is_not_in_the_schema_is_reported(indexes: bytes) -> None:
    decode = protobuf.decoding(proto_schema(CLICK), reader(proto_schema(CLICK)))

    with pytest.raises(IncompatibleError, match="schema 1 has no message"):
        decode(indexes + b"x")
