"""From bytes on the wire to rows, or to a reason: with whichever schema they were written."""

import json
from collections.abc import Iterator

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


def test_values_become_rows(decoder: Decoder) -> None:
    values = [
        framed(2, written.avro(NEW, n=2**40, more="x")),
        None,
        framed(1, written.avro(OLD, n=7)),
        b"garbage",
    ]

    rows = list(decoder.decoded(values))

    assert [{"n": 2**40, "more": "x"}, None, {"n": 7, "more": "none"}, None] == [
        row.columns for row in rows
    ]
    assert [None, None, None, "undecodable_value"] == [row.reason for row in rows]


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


def test_unknown_schema_is_requested_once_a_call(decoder: Decoder, registry: RegistryStub) -> None:
    assert ["unknown_schema"] * 3 == reasons(decoder, *[framed(99, b"x")] * 3)

    assert ["/schemas/ids/99"] == registry.asked


def test_answer_to_an_executor_has_both_schemas(decoder: Decoder) -> None:
    answer = json.loads(decoder.answer(1))

    assert {**OLD, "name": "shop.Impression"} == answer["writer"]
    assert ["n", "more"] == [each["name"] for each in answer["reader"]["fields"]]


def test_answer_of_an_unknown_schema_does_not_last(
    decoder: Decoder, registry: RegistryStub
) -> None:
    answer = json.loads(decoder.answer(99))

    assert ("unknown_schema", False) == (answer["reason"], answer["lasts"])
    assert answer["message"] == f"schema 99 is not in the schema registry {registry.url}"
    number = registry.register("t", OLD)
    assert "writer" in json.loads(decoder.answer(number))


def test_answer_of_an_incompatible_schema_lasts(decoder: Decoder) -> None:
    answer = json.loads(decoder.answer(4))

    assert ("incompatible_schema", True) == (answer["reason"], answer["lasts"])


@pytest.mark.parametrize(("status", "refuses_login"), [(503, False), (401, True)])
def test_answer_names_the_failure_of_the_registry(
    decoder: Decoder, registry: RegistryStub, status: int, refuses_login: bool
) -> None:
    registry.broken = (status, "")

    answer = json.loads(decoder.answer(1))

    assert refuses_login == answer["refuses_login"]
    assert f"HTTP {status}" in answer["failure"]


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
