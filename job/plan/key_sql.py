"""From the key of a record to the column `record_key` in Spark SQL.

A JSON key is read as the member of an object, so that it may be a single value: `7` is read as
`{"record_key":7}`. encoding/ decodes Avro and Protobuf.
"""

from job.formats.schemas import NO_SCHEMA_ID, OF_A_REGISTRY, UNDECODABLE_VALUE, Shape
from job.plan import json_sql
from job.plan.side_plan import SidePlan
from job.plan.timestamp_sql import of_micros
from job.plan.value_sql import DECODED_KEY, MALFORMED_JSON, SCHEMA_MISMATCH
from job.spec.value_format import RecordKeyFormat
from job.sql.literals import quoted
from job.sql.types import TIMESTAMP

_KEY = "parsed_key.record_key"


def parsed(side: SidePlan) -> list[str]:
    """Columns of the first step: the struct `parsed_key` with the key as `record_key`, and as
    `key_text` its object, or the decoder's error message for Avro and Protobuf."""
    if not side.has_typed_keys:
        return []
    if side.keys_have_registry:
        return [f"{DECODED_KEY}.message AS key_text", f"{_decoded(side)} AS parsed_key"]
    text = f"concat('{{\"record_key\":', {_text(side)}, '}}')"
    return [f"{text} AS key_text", f"{json_sql.parsed((side.record_key,), text)} AS parsed_key"]


def restored(side: SidePlan) -> str | None:
    """`parsed_key`, where a number in a STRING has its original text. None: it has it already."""
    if not side.has_typed_keys or side.keys_have_registry:
        return None
    return json_sql.restored((side.record_key,), text="key_text", parsed="parsed_key")


def value(side: SidePlan) -> str:
    """The column `record_key`."""
    if not side.has_typed_keys:
        return "cast(key AS STRING)"
    if side.keys_have_registry:
        return of_micros(_KEY) if side.record_key.type == TIMESTAMP else _KEY
    return json_sql.converted(_KEY, side.record_key.type, side.time_zone)


def reasons(side: SidePlan) -> frozenset[str]:
    """The reasons that a key can have."""
    if not side.has_typed_keys:
        return frozenset()
    if side.keys_have_registry:
        return OF_A_REGISTRY | {SCHEMA_MISMATCH}
    has_id = side.key_format is RecordKeyFormat.JSON_SCHEMA
    return frozenset({MALFORMED_JSON, SCHEMA_MISMATCH} | ({UNDECODABLE_VALUE} if has_id else set()))


def reason(side: SidePlan) -> str | None:
    """The reason if the key is unreadable; null for another key, and for a null. None: each key is
    readable.

    A JSON key is one value if it is one element of an array and, in `parsed_key`, the member of an
    object: no other text is both.
    """
    if not side.has_typed_keys:
        return None
    has_no_value = f"({_KEY} IS NOT NULL AND {value(side)} IS NULL)"
    if side.keys_have_registry:
        return (
            f"CASE WHEN {DECODED_KEY}.reason IS NOT NULL THEN {DECODED_KEY}.reason "
            f"WHEN {has_no_value} THEN '{SCHEMA_MISMATCH}' END"
        )
    is_one_value = f"json_array_length(concat('[', {_text(side)}, ']')) = 1"
    unreadable = json_sql.is_unreadable((side.record_key,), "parsed_key")
    has_no_id = ""
    if side.key_format is RecordKeyFormat.JSON_SCHEMA:
        has_no_id = f"WHEN {json_sql.lacks_schema_id('key')} THEN '{UNDECODABLE_VALUE}' "
    return (
        f"CASE WHEN key IS NULL THEN NULL {has_no_id}"
        f"WHEN NOT is_valid_utf8(key_text) OR NOT coalesce({is_one_value}, false) "
        f"OR ({unreadable} AND try_parse_json(key_text) IS NULL) THEN '{MALFORMED_JSON}' "
        f"WHEN {unreadable} OR {has_no_value} THEN '{SCHEMA_MISMATCH}' END"
    )


def message(side: SidePlan) -> str | None:
    """The error of a key with a `key_reason`. None: no key has one."""
    if not side.has_typed_keys:
        return None
    mismatch = quoted(f"the key is not of the type {side.record_key.type}")
    if side.keys_have_registry:
        decoder = "concat(if(key_schema_id IS NULL, 'the key ', 'the key: '), key_text)"
        return f"if(key_reason = '{SCHEMA_MISMATCH}', {mismatch}, {decoder})"
    return (
        f"CASE key_reason WHEN '{UNDECODABLE_VALUE}' THEN {quoted(f'the key {NO_SCHEMA_ID}')} "
        f"WHEN '{MALFORMED_JSON}' THEN 'the key is not one JSON value in UTF-8' "
        f"ELSE {mismatch} END"
    )


def _decoded(side: SidePlan) -> str:
    assert side.key_reader is not None, "the job has pinned the schema"
    columns = f"{DECODED_KEY}.columns"
    is_plain = side.key_reader.shape is Shape.PLAIN
    return columns if is_plain else f"named_struct('record_key', {columns})"


def _text(side: SidePlan) -> str:
    if side.key_format is RecordKeyFormat.JSON_SCHEMA:
        return json_sql.text_after_schema_id("key")
    return "cast(key AS STRING)"
