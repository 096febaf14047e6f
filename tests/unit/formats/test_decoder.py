"""From bytes on the wire to rows, or to a reason: with whichever schema they were written."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from job.errors import RegistryError
from job.formats.decoder import Decoder
from job.formats.registry import RegistryAccess, latest_schema
from job.protocol.reasons import REASONS
from tests.registry_stub import RegistryStub
from tests.unit.formats import written
from tests.unit.formats.written import CLICK, field, framed, reader, record

OLD = record(field("n", "int"))
NEW = record(field("n", "long"), field("more", "string", default="none"))
ROW = pa.struct(
    {
        "reason": pa.string(),
        "message": pa.string(),
        "schema_id": pa.int64(),
        "columns": pa.struct({"n": pa.int64(), "more": pa.string()}),
    }
)


@pytest.fixture
def registry() -> Iterator[RegistryStub]:
    with RegistryStub() as stub:
        stub.register("s", OLD)
        stub.register("s", NEW)
        stub.register("s", CLICK, "PROTOBUF")
        stub.register("s", record(field("n", "string")))
        yield stub


@pytest.fixture
def decoder(registry: RegistryStub) -> Decoder:
    """Reads by schema 2."""
    access = RegistryAccess(registry.url)
    number = written.avro_schema(NEW, 2)
    registry.asked.clear()
    return Decoder(reader(number), access)


def reasons(decoder: Decoder, *values: bytes | None) -> list[str | None]:
    found = [each.reason for each in decoder.decoded(values)]
    assert {*found, None} <= {*REASONS, None}
    return found


def test_array_of_values_becomes_one_of_rows(decoder: Decoder) -> None:
    values = [
        framed(2, written.avro(NEW, n=2**40, more="x")),
        None,
        framed(1, written.avro(OLD, n=7)),
        b"garbage",
    ]

    rows = decoder(pa.array(values, pa.binary()), ROW).to_pylist()

    assert [{"n": 2**40, "more": "x"}, None, {"n": 7, "more": "none"}, None] == [
        row["columns"] for row in rows
    ]
    assert [None, None, None, "undecodable_value"] == [row["reason"] for row in rows]


def test_own_schema_is_not_requested(decoder: Decoder, registry: RegistryStub) -> None:
    reasons(decoder, framed(2, written.avro(NEW, n=1, more="x")))

    assert [] == registry.asked


@pytest.mark.parametrize("value", [b"", b"\0\0\0\0", b"\1\0\0\0\2\2", b'{"n": 1}'])
def test_value_without_the_header_is_undecodable(decoder: Decoder, value: bytes) -> None:
    assert ["undecodable_value"] == reasons(decoder, value)


def test_value_that_does_not_decode_names_its_schema(decoder: Decoder) -> None:
    [found] = decoder.decoded([framed(2, b"\xff")])

    assert "undecodable_value" == found.reason
    assert found.message is not None
    assert found.message.startswith("schema 2: not Avro of that schema")


def test_unknown_schema_is_requested_once_an_array(
    decoder: Decoder, registry: RegistryStub
) -> None:
    assert ["unknown_schema"] * 3 == reasons(decoder, *[framed(99, b"x")] * 3)

    assert ["/schemas/ids/99"] == registry.asked


def test_schema_that_was_unknown_stays_so_where_that_is_wanted(decoder: Decoder) -> None:
    again = Decoder(decoder.reader, decoder.access, frozenset({1}))

    assert ["unknown_schema", None] == [
        *reasons(again, framed(1, written.avro(OLD, n=7))),
        *reasons(decoder, framed(1, written.avro(OLD, n=7))),
    ]


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (3, "schema 3 has type PROTOBUF, expected AVRO"),
        (4, "schema 4 cannot be read with schema 2: field n: string cannot be read as long"),
    ],
)
def test_schema_that_cannot_be_read_is_incompatible(
    decoder: Decoder, number: int, says: str
) -> None:
    [found] = decoder.decoded([framed(number, b"x")])

    assert ("incompatible_schema", says) == (found.reason, found.message)


def test_registry_that_is_away_makes_no_record_bad(
    decoder: Decoder, registry: RegistryStub
) -> None:
    registry.broken = (503, "")
    with pytest.raises(RegistryError):
        reasons(decoder, framed(1, written.avro(OLD, n=7)))

    registry.broken = None

    assert [None] == reasons(decoder, framed(1, written.avro(OLD, n=7)))


def test_protobuf_is_read_by_its_own_schema(registry: RegistryStub) -> None:
    access = RegistryAccess(registry.url)
    registry.register("p", CLICK, "PROTOBUF")
    schema = latest_schema(access, "p")[1]
    value = framed(schema.id, written.proto(CLICK, ad_id=7, clicked_at=1_000_001, user="u"))

    [found] = Decoder(reader(schema), access).decoded([value])

    assert {"ad_id": 7, "clicked_at": 1_000_001, "user": "u"} == found.columns
