"""The Protobuf schema of the output columns: protoc compiles it, or the column is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job.formats import protobuf
from job.formats.proto_schema import RULES, record_schema
from job.formats.schemas import RegisteredSchema
from job.sql.types import (
    BIGINT,
    DATE,
    SIMPLE_TYPES,
    STRING,
    TIMESTAMP,
    VOID,
    SqlType,
    array_of,
    decimal_type,
    map_of,
    struct_of,
)

DAY_TIME = SqlType("INTERVAL DAY TO SECOND")
NAMES = st.text("aAbB1_", min_size=1, max_size=4)
SINGLE = st.recursive(
    st.sampled_from([kind for kind in SIMPLE_TYPES.values() if kind != DATE]),
    lambda inner: st.dictionaries(
        NAMES, inner | inner.map(array_of) | inner.map(lambda value: map_of(STRING, value)),
        min_size=1, max_size=3,
    ).map(lambda fields: struct_of(fields.items())),
    max_leaves=5,
)  # fmt: skip
TYPES = SINGLE | SINGLE.map(array_of) | SINGLE.map(lambda value: map_of(STRING, value))
NESTED = struct_of([("at", TIMESTAMP)])
# The types that readers have for the others.
READ_AS = {"TINYINT": "INT", "SMALLINT": "INT"}


@given(st.dictionaries(NAMES, TYPES, min_size=1, max_size=4))
def test_columns_without_problems_have_a_schema_that_protoc_compiles(
    columns: dict[str, SqlType],
) -> None:
    if list(RULES.problems(columns.items())):
        return

    text = record_schema("tested", columns.items())

    fields = protobuf.fields(RegisteredSchema(1, "PROTOBUF", text))
    assert list(columns) == list(fields)
    for name, kind in columns.items():
        if not any(inner.holds("TIMESTAMP") for _, inner in kind.fields):
            expected = str(kind)
            for written, read in READ_AS.items():
                expected = expected.replace(written, read)
            assert expected == str(fields[name])


def test_schema_is_readable() -> None:
    columns = [
        ("ad_id", BIGINT),
        ("tags", array_of(STRING)),
        ("last_click", NESTED),
        ("by_name", map_of(STRING, NESTED)),
    ]

    text = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
message TestedJoin {
  optional int64 ad_id = 1;
  repeated string tags = 2;
  optional LastClickStruct last_click = 3;
  map<string, ByNameStruct> by_name = 4;
  message LastClickStruct {
    optional google.protobuf.Timestamp at = 1;
  }
  message ByNameStruct {
    optional google.protobuf.Timestamp at = 1;
  }
}"""
    assert text == record_schema("tested_join", columns)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("two words", STRING, "is not a name in Protobuf"),
        ("_x", STRING, "is not a name in Protobuf"),
        ("größe", STRING, "is not a name in Protobuf"),
        ("x", VOID, "is a bare NULL"),
        ("x", DATE, "is DATE, which Protobuf does not have: write cast(… AS STRING)"),
        ("x", decimal_type(10, 2), "is DECIMAL(10,2), which Protobuf does not have"),
        ("x", array_of(DAY_TIME), "is INTERVAL DAY TO SECOND, which Protobuf does not have"),
        ("x", array_of(array_of(STRING)), "is ARRAY of ARRAY, which Protobuf does not have"),
        ("x", map_of(STRING, array_of(STRING)), "is MAP of ARRAY, which Protobuf does not have"),
        ("x", map_of(BIGINT, STRING), "has keys of type BIGINT"),
        ("x", struct_of([("a b", STRING)]), "has the field `a b`, which is not a name"),
        ("x", struct_of([("a", STRING), ("a", STRING)]), "has several fields `a`"),
        ("x", struct_of([("a_b", STRING), ("aB", STRING)]), "has the fields `a_b` and `aB`"),
        ("N_1", STRING, "has the same name in Protobuf as n1, because case and _ do not count"),
    ],
)
def test_column_that_protobuf_cannot_hold_is_refused_by_name(
    name: str, kind: SqlType, message: str
) -> None:
    [(column, problem)] = RULES.problems([("n1", STRING), (name, kind)])

    assert name == column
    assert problem.startswith(message)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", map_of(STRING, STRING)), ("a_entry", STRING)),
        (("a", NESTED), ("AStruct", STRING)),
        (("a_struct", STRING), ("a", array_of(NESTED))),
    ],
)
def test_column_with_the_name_of_a_message_of_another_is_refused(
    first: tuple[str, SqlType], second: tuple[str, SqlType]
) -> None:
    [(column, problem)] = RULES.problems([first, second])

    assert second[0] == column
    assert problem.startswith(f"has the same name in Protobuf as {first[0]},")
