"""Records of Kafka are read as the job reads them, with the messages of dead letters."""

import math
from datetime import date
from decimal import Decimal
from typing import Any

from job.check.reading import ReadRecord, read_records
from job.formats.pinning import reader_schemas
from job.formats.registry import RegistryAccess
from job.plan.planner import join_plan
from job.semantics.input_records import InputRecord
from job.spec.spec import spec_from_yaml
from tests.registry_stub import RegistryStub
from tests.sql_worker import ROWS, SQL
from tests.unit.formats.written import avro, field, framed, record
from tests.unit.specs import plan, spec_yaml


def read(values: list[str | bytes | None], **changes: Any) -> list[ReadRecord]:
    made = plan(**changes)
    records = [InputRecord(value, number) for number, value in enumerate(values)]
    return read_records(made, "left", ROWS, None, records)


def test_bad_record_has_the_message_of_its_dead_letter() -> None:
    seconds, text, none = read(
        [
            '{"ad_id": 1, "shown_at": 1709287207}',
            '{"ad_id": "one", "shown_at": 1709287207000}',
            None,
        ]
    )

    assert "absurd_event_time" == seconds.reason
    assert "as seconds it is 2024-03-01T10:00:07Z" in seconds.message
    assert ("schema_mismatch", "not of the declared type: ad_id BIGINT") == (
        text.reason,
        text.message,
    )
    assert ("tombstone", "the record has no value") == (none.reason, none.message)
    assert [None] * 3 == [each.key for each in (seconds, text, none)]


def test_equal_keys_of_both_sides_are_equal_and_null_columns_are_named() -> None:
    made = plan(left__key=["cast(ad_id AS INT)"], left__filter="cost > 0")
    row = InputRecord('{"ad_id": 7, "shown_at": 1709287207000, "cost": 1}', 0)
    other = InputRecord('{"ad_id": 7, "clicked_at": 1709287207000}', 0)

    free = InputRecord('{"ad_id": 7, "shown_at": 1709287207000, "cost": 0}', 1)
    [left, dropped] = read_records(made, "left", ROWS, None, [row, free])
    [right] = read_records(made, "right", ROWS, None, [other])

    assert left.key is not None
    assert left.key == right.key
    assert "7" == left.key_text
    assert {"campaign"} == left.nulls
    assert {"user"} == right.nulls
    assert 1_709_287_207_000_000 == left.event_time_us
    assert (None, False, None) == (dropped.reason, dropped.passes, dropped.key)


def test_null_key_that_becomes_a_dead_letter_has_a_reason() -> None:
    [null] = read(
        ['{"shown_at": 1709287207000}'],
        on_bad_record=None,
        dead_letter={"topic": "dead"},
        on_null_key="dead_letter",
    )

    assert ("null_key", "null in the key: ad_id") == (null.reason, null.message)


_ROW = record(
    field("ad_id", "long"),
    field("shown_at", {"type": "long", "logicalType": "timestamp-millis"}),
    field("note", ["null", "string"]),
    field("raw", "bytes"),
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    field("day", {"type": "int", "logicalType": "date"}),
    field("ratios", {"type": "map", "values": "double"}),
    field("tags", {"type": "array", "items": "string"}),
)


def test_values_with_a_registered_schema_are_decoded() -> None:
    row = {
        "ad_id": 7,
        "shown_at": 1_709_287_207_000,
        "note": None,
        "raw": b"\xff",
        "price": Decimal("1.50"),
        "day": date(2024, 3, 1),
        "ratios": {"a": 0.5, "b": math.nan, "c": -math.inf},
        "tags": ["x"],
    }
    with RegistryStub() as stub:
        number = stub.register("impressions-value", _ROW)
        text = spec_yaml(
            left__format="avro",
            left__schema=None,
            left__key=[
                (
                    "concat(ad_id, ' ', hex(raw), price, day, ratios['a'], tags[0], ratios['b'], "
                    "ratios['c'])"
                )
            ],
            right__key=["cast(ad_id AS STRING)"],
            output__columns={"ad_id": "left.ad_id"},
            schema_registry={"url": stub.url},
        )
        spec = spec_from_yaml(text, {})
        made = join_plan(spec, SQL, state_partitions=1, readers=reader_schemas(spec, SQL))
        values = [framed(number, avro(_ROW, **row)), framed(99, b"x"), b"text"]
        records = [InputRecord(value, n) for n, value in enumerate(values)]
        read = read_records(made, "left", ROWS, RegistryAccess(stub.url), records)

    assert [None, "unknown_schema", "undecodable_value"] == [each.reason for each in read]
    assert "schema 99 is not in the schema registry" in read[1].message
    assert "7 FF1.502024-03-010.5xNaN-Infinity" == read[0].key_text
    assert {"note"} == read[0].nulls
    assert 1_709_287_207_000_000 == read[0].event_time_us
