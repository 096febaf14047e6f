"""A proposal for values with a registered schema is valid and reads them."""

from collections.abc import Iterator
from typing import Any

import pytest

from job.errors import SpecError, StreamjoinError
from job.formats.registry import RegistryAccess
from job.proposal.columns import Table
from job.proposal.dialog import Options, draft_of, proposed
from job.proposal.keys import key_fields
from job.proposal.observed import Observer
from job.proposal.proposal import Proposal
from job.proposal.registered import registered_table, with_registered_keys
from job.proposal.sample import Sample
from job.proposal.spec_text import spec_text
from job.proposal.values import has_schema_ids, reason_for_registry, table_of_sample
from job.semantics.input_records import InputRecord
from job.semantics.simulate import simulate
from job.spec.value_format import Format
from job.sql.types import BIGINT, STRING, TIMESTAMP, struct_of
from tests.registry_stub import RegistryStub
from tests.sql_worker import ROWS, SQL
from tests.unit.formats.written import avro, envelope, field, framed, plain_avro, record
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
        [None] * len(values),
    )


def table(registry: RegistryStub, schema: dict[str, Any], *rows: dict[str, Any]) -> Table:
    number = registry.register("t-value", schema)
    values = [framed(number, avro(schema, **row)) for row in rows]
    return registered_table(sample("t", *values), "left", RegistryAccess(registry.url))


OBSERVER = Observer({}, SQL, ROWS)


def proposal_of(left: Table, right: Table, registry: RegistryStub, key: str = "id") -> Proposal:
    draft = draft_of(
        {"left": "t", "right": "t"}, {"left": left, "right": right}, OBSERVER,
        registry=f"url: {registry.url}",
    )  # fmt: skip
    keys = Options(left_key=key, right_key=key)
    return proposed(draft, keys, lambda question: str(question.default), lambda _: None, OBSERVER)


def results(found: Proposal) -> int:
    records = (found.tables["left"].simulated, found.tables["right"].simulated)
    return sum(len(batch.output) for batch in simulate(OBSERVER.plan(found), ROWS, *records))


def test_epoch_milliseconds_and_fields_of_records_are_read_as_the_job_reads_them(
    registry: RegistryStub,
) -> None:
    rows = ({"id": n, "at": T0_MS + n, "note": "2025-12-31T00:00:00Z"} for n in range(3))
    found = table(registry, PLAIN, *rows)
    proposal = proposal_of(found, found, registry)

    assert "timestamp_millis(at)" == proposal.times["left"].sql
    assert "cast(note AS TIMESTAMP)" in [time.sql for time in proposal.other_times["left"]]
    assert "schema: " not in spec_text(proposal, SQL)
    assert 3 == results(proposal)


def test_columns_of_the_registry_are_used_without_those_of_unsupported_types(
    registry: RegistryStub,
) -> None:
    inner = {"type": "record", "name": "inner", "fields": [field("code", "string")]}
    schema = record(*TYPED["fields"], field("user", inner))
    row = {"id": 1, "at": T0_MS * 1_000, "either": 5, "user": {"code": "u1"}}
    found = table(registry, schema, row)
    proposal = proposal_of(found, found, registry)

    user = struct_of([("code", STRING)])
    assert {"id": BIGINT, "at": TIMESTAMP, "user": user} == found.columns
    assert [T0_MS * 1_000] == proposal.times["left"].times
    assert 'no column can have the name or the type: "either"' in spec_text(proposal, SQL)
    assert 1 == results(proposal)
    field_names = [time.sql for time in proposal.other_times["left"]]
    assert ["at", "record_timestamp"] == field_names
    assert ["id", "user.code"] == [each.sql for each in key_fields(found, proposal.quoted)]


def test_schema_is_left_to_the_registry_if_the_columns_are_the_same(registry: RegistryStub) -> None:
    schema = record(*TYPED["fields"][:2])
    found = table(registry, schema, {"id": 1, "at": T0_MS * 1_000})
    text = spec_text(proposal_of(found, found, registry), SQL)

    assert "format: avro   # subject t-value, version 1" in text
    assert "schema: " not in text


def test_envelopes_are_opened(registry: RegistryStub) -> None:
    row = record(*TYPED["fields"][:2], name="shop.Row")
    source = {"db": "shop", "ts_ms": T0_MS}
    images = [{"id": n, "at": T0_MS * 1_000} for n in range(3)]
    read = table(
        registry,
        envelope(row),
        *({"after": image, "op": "c", "source": source} for image in images),
        {"before": images[0], "op": "d", "source": source},
    )
    found = proposal_of(read, read, registry)

    assert {"id": BIGINT, "at": TIMESTAMP} == read.columns
    assert "envelope: debezium   # the row is `after`" in spec_text(found, SQL)
    assert 3 == results(found)


@pytest.mark.parametrize(
    ("schema", "rows", "expression", "note"),
    [
        (record(field("id", "int")), [{"id": n} for n in range(3)], "record_key.id", "STRUCT"),
        ({"type": "long"}, range(3), "record_key", "BIGINT"),
    ],
)
def test_record_keys_are_read_with_the_schema_of_the_registry(
    registry: RegistryStub, schema: Any, rows: Any, expression: str, note: str
) -> None:
    access = RegistryAccess(registry.url)
    number = registry.register("t-key", schema)
    keys = [framed(number, plain_avro(schema, row)) for row in rows]
    records = [
        InputRecord(b'{"note": "x"}', n, timestamp_us=T0_MS * 1_000) for n in range(len(keys) + 1)
    ]
    whole = Sample("t", records, [*keys, None])
    read = with_registered_keys(table_of_sample(whole), whole, "left", access, SQL)
    found = proposal_of(read, read, registry, expression)

    text = spec_text(found, SQL)
    assert "  key_format: avro   # subject t-key, version 1\n" in text
    assert note in str(read.keys.type)
    assert 3 == results(found)

    unread = Sample("t", records, [*keys, framed(number, b"")])
    table = table_of_sample(unread)
    assert table is with_registered_keys(table, unread, "left", access, SQL)
    other = Sample("other", records, whole.keys)
    assert table is with_registered_keys(table, other, "left", access, SQL)


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
    with pytest.raises(StreamjoinError, match="of topic json begin with the id 1 of a schema"):
        registered_table(sample("json", good), "left", access)


def test_schema_in_json_gives_columns_that_the_sample_does_not_show(registry: RegistryStub) -> None:
    schema = '{"type": "object", "properties": {"id": {"type": "integer"}, "x": {"type": "null"}}}'
    registry.register("t-value", schema, "JSON")
    values = [framed(1, b'{"at": 5}'), framed(1, b'{"at": 6, "id": null}')]
    found = registered_table(sample("t", *values), "left", RegistryAccess(registry.url))
    assert {"at": BIGINT, "id": BIGINT} == found.columns
    assert (Format.JSON_SCHEMA, None) == (found.format, found.reader)


def test_wire_format_is_recognized_and_the_registry_is_named_if_it_has_the_columns() -> None:
    binary = sample("t", None, framed(1, b"x"), framed(300, b"y"))
    assert has_schema_ids(binary)
    assert "begin with the id 300 of a schema" in str(reason_for_registry(binary))
    assert has_schema_ids(json := sample("t", None, framed(1, b'{"a": 1}')))
    assert reason_for_registry(json) is None
    assert not has_schema_ids(sample("t", None, b'{"a": 1}'))
    assert not has_schema_ids(sample("t", None))
