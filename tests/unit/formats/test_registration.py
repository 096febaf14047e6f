"""The schema of the results gets its id: registered, looked up, or refused with a reason."""

import json
from collections.abc import Iterator

import pytest

from job.errors import RegistryError, SecurityError, SpecError
from job.evaluation.sql_types import DOUBLE, STRING, SqlType
from job.formats.avro_schema import avro_schema
from job.formats.registration import registered
from job.formats.registry import RegistryAccess
from job.formats.schemas import OutputSchema
from job.join_spec.value_format import Format
from tests.registry_stub import RegistryStub
from tests.unit.formats.written import CLICK


@pytest.fixture
def registry() -> Iterator[RegistryStub]:
    with RegistryStub() as stub:
        yield stub


def schema(*, registers: bool = True, cost: SqlType = DOUBLE) -> OutputSchema:
    return OutputSchema(Format.AVRO, "out/value", registers, avro_schema("tested", {"cost": cost}))


def refusal(stub: RegistryStub, wanted: OutputSchema) -> str:
    with pytest.raises(SpecError) as raised:
        registered(wanted, RegistryAccess(stub.url))
    [problem] = raised.value.problems
    assert ("output.subject", "out/value") == (problem.field, problem.value)
    return problem.message


def test_schema_is_registered_once(registry: RegistryStub) -> None:
    registry.register("other", "{}")

    ids = [registered(schema(), RegistryAccess(registry.url)).id for _ in range(2)]

    assert [2, 2] == ids
    assert ["POST /subjects/out%2Fvalue/versions"] * 2 == registry.asked


def test_schema_is_only_looked_up_without_register(registry: RegistryStub) -> None:
    number = registry.register("out/value", json.loads(schema().text))
    wanted = OutputSchema(Format.AVRO, "out/value", False, json.dumps(json.loads(schema().text)))

    assert number == registered(wanted, RegistryAccess(registry.url)).id
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


@pytest.mark.parametrize(
    ("status", "error"), [(500, RegistryError), (200, RegistryError), (403, SecurityError)]
)
def test_registry_that_fails_is_no_problem_of_the_spec(
    registry: RegistryStub, status: int, error: type[Exception]
) -> None:
    registry.broken = (status, "{}")

    with pytest.raises(error):
        registered(schema(), RegistryAccess(registry.url))
