"""Keys and values of results as text that is equal if their contents are equal."""

from collections.abc import Iterator
from decimal import Decimal

import pytest

from job.compare.values import ContentReader
from job.errors import RegistryError
from job.formats.registry import RegistryAccess
from job.spec.value_format import KeyFormat
from tests.registry_stub import RegistryStub
from tests.unit.formats import written
from tests.unit.formats.written import CLICK, field, framed, record

INT = record(field("n", "int"), field("user", ["null", "string"]))
LONG = record(field("n", "long"), field("user", ["null", "string"]))
AMOUNT = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
PAID = record(
    field("amount", AMOUNT),
    field("raw", "bytes"),
    field("at", {"type": "long", "logicalType": "timestamp-millis"}),
    field("lines", {"type": "array", "items": "double"}),
)


@pytest.fixture
def registry() -> Iterator[RegistryStub]:
    with RegistryStub() as stub:
        for schema in (INT, LONG, PAID):
            stub.register("s", schema)
        stub.register("s", CLICK, "PROTOBUF")
        stub.register("s", record(field("odd", ["int", "string"])))
        yield stub


def reader(kind: KeyFormat, registry: RegistryStub) -> ContentReader:
    return ContentReader(kind, RegistryAccess(registry.url))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b'{"a": 1, "b": {"c": [1, null]}}', b'{"b":{"c":[1,null]},"a":1}'),
        (b'{"a": 10}', b'{"a": 1.0e1}'),
        (b'{"a": 0.10}', b'{"a": 0.1}'),
        ('{"a": "é"}'.encode(), b'{"a": "\\u00e9"}'),
    ],
)
def test_json_is_compared_by_its_content(first: bytes, second: bytes) -> None:
    json = ContentReader(KeyFormat.JSON, None)

    assert json.text(first) == json.text(second)
    assert (0, None) == (json.as_bytes, json.reason)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b'{"a": 1}', b'{"a": "1"}'),
        (b'{"a": null}', b"{}"),
        (b'{"a": [1, 2]}', b'{"a": [2, 1]}'),
        (b'{"a": 1234567890123456789.01}', b'{"a": 1234567890123456789.02}'),
        (b'{"a": 1e400}', b'{"a": 1e401}'),
        (b'{"a": 1e9999999}', b'{"a": 1e9999998}'),
        (b'{"a": 1e-9999999}', b'{"a": 1e-9999998}'),
        (b'{"a": %s1}' % (b"7" * 5_000), b'{"a": %s2}' % (b"7" * 5_000)),
        (b"null", None),
        (b"{", b'{"'),
    ],
)
def test_other_json_is_another_text(first: bytes, second: bytes | None) -> None:
    json = ContentReader(KeyFormat.JSON, None)

    assert json.text(first) != json.text(second)


def test_number_that_python_cannot_read_is_compared_as_bytes_with_its_reason() -> None:
    json = ContentReader(KeyFormat.JSON, None)

    assert f"0x{b'1e9999999999999999999'.hex()}" == json.text(b"1e9999999999999999999")
    assert (json.reason or "").startswith("a number has an exponent outside ")


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_compared_as_bytes_and_counted(content: bytes) -> None:
    json = ContentReader(KeyFormat.JSON, None)

    assert f"0x{content.hex()}" == json.text(content)
    assert 1 == json.as_bytes
    assert json.reason is not None
    assert json.reason.startswith("not json")


def test_key_is_text_without_control_characters() -> None:
    key = ContentReader(KeyFormat.STRING, None)

    assert ['"17"', '"\\u001b[2J"', "0xff", None] == [
        key.text(content) for content in (b"17", b"\x1b[2J", b"\xff", None)
    ]
    assert 1 == key.as_bytes


def test_avro_of_another_schema_is_the_same_value(registry: RegistryStub) -> None:
    values = reader(KeyFormat.AVRO, registry)

    old = values.text(framed(1, written.avro(INT, n=7, user="ada")))
    new = values.text(framed(2, written.avro(LONG, n=7, user="ada")))

    assert '{"n": 7, "user": "ada"}' == old == new
    assert 2 == len(registry.asked)


def test_all_types_of_avro_have_a_text(registry: RegistryStub) -> None:
    values = reader(KeyFormat.AVRO, registry)
    row = {"amount": Decimal("12345678901234567.80"), "raw": b"\1\2", "at": 5, "lines": [0.5, 2.0]}

    assert (
        '{"amount": 12345678901234567.8, "at": 5000, "lines": [0.5, 2.0], "raw": "0x0102"}'
        == values.text(framed(3, written.avro(PAID, **row)))
    )


def test_protobuf_is_decoded(registry: RegistryStub) -> None:
    values = reader(KeyFormat.PROTOBUF, registry)

    assert '{"ad_id": 7, "clicked_at": 5000000, "user": null}' == values.text(
        framed(4, written.proto(CLICK, ad_id=7, clicked_at=5_000_000))
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"garbage", "does not begin with"),
        (framed(9, b""), "does not have /schemas/ids/9"),
        (framed(4, b""), "schema 4: has type PROTOBUF, expected AVRO"),
        (framed(5, b"\0"), "schema 5: field odd has no SQL type"),
        (framed(1, b"\x01"), "not Avro of that schema"),
    ],
)
def test_avro_that_cannot_be_decoded_is_compared_as_bytes(
    content: bytes, reason: str, registry: RegistryStub
) -> None:
    values = reader(KeyFormat.AVRO, registry)

    assert f"0x{content.hex()}" == values.text(content)
    assert values.reason is not None
    assert reason in values.reason


def test_registry_that_does_not_answer_is_an_error(registry: RegistryStub) -> None:
    registry.broken = (503, "")

    with pytest.raises(RegistryError):
        reader(KeyFormat.AVRO, registry).text(framed(1, b""))
