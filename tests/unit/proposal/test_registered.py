"""A proposal for values with a registered schema is valid and reads them."""

from collections.abc import Iterator
from typing import Any

import pytest

from job.errors import SpecError, StreamjoinError
from job.formats.pinning import reader_schemas
from job.formats.registry import RegistryAccess
from job.plan.planner import join_plan
from job.proposal.choices import event_times
from job.proposal.columns import Table, quoted_names
from job.proposal.registered import has_registered_schema, registered_table
from job.proposal.sample import Sample
from job.proposal.spec_text import Proposal, spec_text
from job.semantics.input_records import InputRecord
from job.spec.join_conditions import JoinType
from job.spec.spec import spec_from_yaml
from job.sql.types import BIGINT, TIMESTAMP
from tests.registry_stub import RegistryStub
from tests.sql_worker import ROWS, SQL
from tests.unit.formats.written import avro, field, framed, record
from tests.unit.proposal.samples import T0_MS

PLAIN = record(field("id", "int"), field("at", "long"), field("note", "string"))
TYPED = record(
    field("id", "long"),
    field("at", {"type": "long", "logicalType": "timestamp-micros"}),
    field("either", ["int", "string"]),
)


@pytest.fixture
def registry() -> Iterator[RegistryStub]:
    with RegistryStub() as stub:
        yield stub


def sample(topic: str, *values: bytes | None) -> Sample:
    return Sample(
        topic,
        [InputRecord(each, n, timestamp_us=T0_MS * 1_000) for n, each in enumerate(values)],
    )


def table(registry: RegistryStub, schema: dict[str, Any], *rows: dict[str, Any]) -> Table:
    number = registry.register("t-value", schema)
    values = [framed(number, avro(schema, **row)) for row in rows]
    return registered_table(sample("t", *values), "left", RegistryAccess(registry.url))


def proposed(left: Table, right: Table, registry: RegistryStub) -> str:
    return spec_text(
        Proposal(
            name="joined",
            bootstrap_servers="localhost:9092",
            security=None,
            registry=f"url: {registry.url}",
            topics={"left": "t", "right": "t"},
            tables={"left": left, "right": right},
            times={"left": event_times(left, ROWS)[0], "right": event_times(right, ROWS)[0]},
            keys=[("id", "id")],
            join_type=JoinType.INNER,
            output_topic="out",
            quoted=quoted_names([*left.columns, *right.columns], SQL),
        )
    )


def test_event_time_in_epoch_milliseconds_is_declared_as_a_timestamp(
    registry: RegistryStub,
) -> None:
    rows = ({"id": n, "at": T0_MS + n, "note": "2026-01-01T00:00:00Z"} for n in range(3))
    found = table(registry, PLAIN, *rows)
    text = proposed(found, found, registry)

    # A TIMESTAMP cannot be read from a registered string.
    assert ["at", "record_timestamp"] == [each.column for each in event_times(found, ROWS)]
    assert "schema: id INT, at TIMESTAMP, note STRING" in text
    spec = spec_from_yaml(text, {})
    join_plan(spec, SQL, state_partitions=1, readers=reader_schemas(spec, SQL))


def test_columns_of_the_registry_are_used_without_those_of_unsupported_types(
    registry: RegistryStub,
) -> None:
    found = table(registry, TYPED, {"id": 1, "at": T0_MS * 1_000, "either": 5})
    text = proposed(found, found, registry)

    assert {"id": BIGINT, "at": TIMESTAMP} == found.columns
    assert [T0_MS * 1_000] == event_times(found, ROWS)[0].times
    assert 'no column can have the name or the type: "either"' in text
    spec = spec_from_yaml(text, {})
    join_plan(spec, SQL, state_partitions=1, readers=reader_schemas(spec, SQL))


def test_schema_is_left_to_the_registry_if_the_columns_are_the_same(registry: RegistryStub) -> None:
    schema = record(*TYPED["fields"][:2])
    found = table(registry, schema, {"id": 1, "at": T0_MS * 1_000})
    text = proposed(found, found, registry)

    assert "format: avro   # subject t-value, version 1" in text
    assert "schema: " not in text


def test_values_that_cannot_be_read_are_left_out_or_refused(registry: RegistryStub) -> None:
    access = RegistryAccess(registry.url)
    number = registry.register("t-value", PLAIN)
    good = framed(number, avro(PLAIN, id=1, at=T0_MS, note="x"))
    mixed = sample("t", None, framed(number, b"\xff"), good)
    assert [2] == [each.offset for each in registered_table(mixed, "left", access).records]

    bad = sample("t", framed(9, b""))
    with pytest.raises(
        StreamjoinError, match=r"no value that the newest schema .* schema 9 is not"
    ):
        registered_table(bad, "left", access)
    with pytest.raises(SpecError, match=r"does not exist.*other-value"):
        registered_table(sample("other", good), "right", access)
    registry.register("json-value", "{}", "JSON")
    with pytest.raises(StreamjoinError, match="has a schema of type JSON"):
        registered_table(sample("json", good), "left", access)


def test_wire_format_is_recognized_behind_a_tombstone() -> None:
    assert has_registered_schema(sample("t", None, framed(1, b"x")))
    assert not has_registered_schema(sample("t", None, b'{"a": 1}'))
    assert not has_registered_schema(sample("t", None))
