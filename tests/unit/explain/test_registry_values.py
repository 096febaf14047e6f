"""Values and keys of a registry become the JSON that a simulation reads."""

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from job.explain.facts import Bad
from job.explain.registry_values import RegistryValues
from job.formats.registry import RegistryAccess
from job.formats.schemas import Part, ReaderSchema, Shape
from job.plan.plan import JoinPlan
from job.semantics.input_records import InputRecord
from job.spec.value_format import Format, RecordKeyFormat
from tests.registry_stub import RegistryStub
from tests.unit.formats.written import avro, avro_schema, field, framed, plain_avro, reader, record

ROW = record(field("ratio", "double"))
NO_ID = Bad("undecodable_value", "does not begin with a byte 0 and the 4 of a schema's id")


def input_record(value: bytes | None = None, key: bytes | None = None) -> InputRecord:
    """As the topic has it."""
    text = None if key is None else key.decode(errors="surrogateescape")
    return InputRecord(value, 3, key=text)


def plan_with(
    readers: dict[Part, ReaderSchema],
    value: Format = Format.AVRO,
    key: RecordKeyFormat = RecordKeyFormat.STRING,
) -> JoinPlan:
    side = SimpleNamespace(format=value, key_format=key)
    return cast("JoinPlan", SimpleNamespace(side=lambda _: side, readers=readers))


def values(of: JoinPlan, url: str = "http://localhost:1") -> RegistryValues:
    return RegistryValues(of, RegistryAccess(url))


@pytest.mark.parametrize("part", ["value", "key"])
def test_json_schema_loses_the_id_of_its_schema_once(part: str) -> None:
    formats: dict[str, Any] = {"value": Format.JSON_SCHEMA, "key": RecordKeyFormat.JSON_SCHEMA}
    json_schema = RegistryValues(plan_with({}, **{part: formats[part]}), None)
    contents = [framed(200, b'"a long enough text"'), b"text", None]

    found = json_schema.decoded("left", [input_record(**{part: each}) for each in contents])

    texts = [getattr(each.record, part) for each in found]
    expected = '"a long enough text"'
    assert [expected.encode() if part == "value" else expected, None, None] == texts
    message = NO_ID.message if part == "value" else f"the key: {NO_ID.message}"
    assert [None, Bad(NO_ID.reason, message), None] == [each.problem for each in found]


def test_key_with_a_byte_that_is_no_text_is_decoded() -> None:
    key = reader(avro_schema("long", 200), shape=Shape.PLAIN)
    of_key = values(plan_with({Part("left", "key"): key}, Format.JSON))

    [found] = of_key.decoded("left", [input_record(b"{}", framed(200, plain_avro("long", 7)))])

    assert (b"{}", "7", None) == (found.record.value, found.record.key, found.problem)


def test_unknown_schema_is_requested_once() -> None:
    with RegistryStub() as stub:
        number = stub.register("s", ROW)
        of_value = values(plan_with({Part("left"): reader(avro_schema(ROW, number))}), stub.url)
        found = of_value.decoded("left", [input_record(framed(99, b"x"))] * 3)
        asked = [path for path in stub.asked if "99" in path]

    assert ["unknown_schema"] * 3 == [each.problem and each.problem.reason for each in found]
    assert 1 == len(asked)


def test_number_that_json_does_not_have_is_null() -> None:
    row = record(field("ratio", "double"), field("shown_at", "string"))
    of_value = values(plan_with({Part("left"): reader(avro_schema(row, 200))}))
    written = avro(row, ratio=math.nan, shown_at="2026-01-01T00:00:00Z")

    [found] = of_value.decoded("left", [input_record(framed(200, written))])

    assert b'{"ratio": null, "shown_at": "2026-01-01T00:00:00Z"}' == found.record.value
