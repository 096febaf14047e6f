"""The schema of the results gets its id: registered, looked up, or refused with a reason."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from job.errors import RegistryError, SecurityError, SpecError
from job.formats import avro_schema, proto_schema
from job.formats.registration import check_accepted, ensure_registered
from job.formats.registry import RegistryAccess, latest_schema
from job.formats.schemas import OutputSchema
from job.spec.value_format import Format
from job.sql.types import BIGINT, DOUBLE, STRING, SqlType, struct_of
from tests.registry_stub import RegistryStub
from tests.unit.formats.written import CLICK


@pytest.fixture
def registry() -> Iterator[RegistryStub]:
    with RegistryStub() as stub:
        yield stub


def schema(*, registers: bool = True, cost: SqlType = DOUBLE) -> OutputSchema:
    columns = (("cost", cost),)
    text = avro_schema.record_schema("tested", columns)
    return OutputSchema(Format.AVRO, "out/value", registers, text, columns)


def proto(*columns: tuple[str, SqlType], is_key: bool = False) -> OutputSchema:
    text = proto_schema.record_schema("tested", columns)
    return OutputSchema(Format.PROTOBUF, "out/value", True, text, columns, is_key)


def test_check_before_a_change_refuses_what_a_start_would_and_registers_nothing(
    registry: RegistryStub,
) -> None:
    access = RegistryAccess(registry.url)
    check_accepted(schema(), access)  # the subject does not exist
    with pytest.raises(SpecError, match="register"):
        check_accepted(schema(registers=False), access)
    ensure_registered(schema(), access)
    registry.refusal = "the type of cost differs"
    with pytest.raises(SpecError, match="refuses the schema"):
        check_accepted(schema(cost=STRING), access)
    assert 1 == latest_schema(access, "out/value")[0]


def refusal(stub: RegistryStub, wanted: OutputSchema) -> str:
    with pytest.raises(SpecError) as raised:
        ensure_registered(wanted, RegistryAccess(stub.url))
    [problem] = raised.value.problems
    assert ("output.subject", "out/value") == (problem.field, problem.value)
    return problem.message


def test_schema_is_registered_once(registry: RegistryStub) -> None:
    registry.register("other", "{}")

    ids = [ensure_registered(schema(), RegistryAccess(registry.url)).id for _ in range(2)]

    assert [2, 2] == ids
    assert ["POST /subjects/out%2Fvalue/versions"] * 2 == registry.asked


def test_schema_is_only_looked_up_without_register(registry: RegistryStub) -> None:
    number = registry.register("out/value", json.loads(schema().text))
    text = json.dumps(json.loads(schema().text))
    wanted = replace(schema(registers=False), text=text)

    assert number == ensure_registered(wanted, RegistryAccess(registry.url)).id
    assert ["POST /subjects/out%2Fvalue"] == registry.asked


@pytest.mark.parametrize("known", [None, STRING])
def test_schema_that_is_not_registered_is_refused_without_register(
    registry: RegistryStub, known: SqlType | None
) -> None:
    if known is not None:
        registry.register("out/value", schema(cost=known).text)

    message = refusal(registry, schema(registers=False))

    assert message.startswith("does not have the schema of the output columns")
    assert ("field cost: string cannot be read as double" in message) == (known is not None)


def test_incompatible_schema_is_refused_with_the_field_and_the_registrys_reason(
    registry: RegistryStub,
) -> None:
    registry.register("out/value", schema(cost=STRING).text)
    registry.refusal = "Schema being registered is incompatible"

    message = refusal(registry, schema())

    assert "version 1: field cost: string cannot be read as double" in message
    assert "Schema being registered is incompatible" in message


def test_subject_with_another_type_of_schema_is_named(registry: RegistryStub) -> None:
    registry.register("out/value", CLICK, "PROTOBUF")
    registry.refusal = "no"

    assert "(version 1 has type PROTOBUF)" in refusal(registry, schema())


def test_protobuf_schema_is_registered_with_its_type(registry: RegistryStub) -> None:
    access = RegistryAccess(registry.url)
    first = ensure_registered(proto(("a", STRING)), access)
    added = ensure_registered(proto(("a", STRING), ("b", BIGINT)), access)

    assert (1, 2) == (first.id, added.id)
    _, newest = latest_schema(access, "out/value")
    assert "PROTOBUF" == newest.type


@pytest.mark.parametrize(
    ("columns", "change"),
    [
        ([("a", STRING), ("b", STRING)], "number 3 is c, which is missing"),
        (
            [("b", STRING), ("a", STRING), ("c", struct_of([("x", STRING)]))],
            "number 1 is a, not b; number 2 is b, not a",
        ),
        (
            [("a", STRING), ("b", STRING), ("c", struct_of([("y", STRING)]))],
            "number 1 is c.x, not c.y",
        ),
    ],
)
def test_protobuf_field_that_gets_the_number_of_another_is_refused_by_name(
    registry: RegistryStub, columns: list[tuple[str, SqlType]], change: str
) -> None:
    before = proto(("a", STRING), ("b", STRING), ("c", struct_of([("x", STRING)])))
    ensure_registered(before, RegistryAccess(registry.url))

    message = refusal(registry, proto(*columns))

    assert message.startswith(f"has other fields in version 1: {change}. Fields are numbered")
    assert "POST" not in registry.asked[-1]


def test_incompatible_protobuf_key_is_refused_with_the_field(registry: RegistryStub) -> None:
    ensure_registered(proto(("key", STRING)), RegistryAccess(registry.url))
    registry.refusal = "no"

    with pytest.raises(SpecError) as raised:
        ensure_registered(proto(("key", BIGINT), is_key=True), RegistryAccess(registry.url))

    [problem] = raised.value.problems
    assert "output.key_format" == problem.field
    assert problem.message.startswith("refuses the schema of output.key (compared with version 1:")
    assert "field key (1): string cannot be read as int64" in problem.message


@pytest.mark.parametrize(
    ("status", "error"), [(500, RegistryError), (200, RegistryError), (403, SecurityError)]
)
def test_registry_that_fails_is_no_problem_of_the_spec(
    registry: RegistryStub, status: int, error: type[Exception]
) -> None:
    registry.broken = (status, "{}")

    with pytest.raises(error):
        ensure_registered(schema(), RegistryAccess(registry.url))
