"""From the envelope of a change to the row in it, in Spark SQL.

Debezium writes `{"before": …, "after": …, "source": {…}, "op": "c"}`, or with the schema of its
converter `{"schema": …, "payload": {…}}`; in Avro a record with these fields. The steps here follow
those that parse the value, and replace the struct `parsed` by the one of the row.
"""

from collections.abc import Iterator

from job.plan import json_sql
from job.plan.side_plan import SidePlan
from job.plan.timestamp_sql import of_millis
from job.spec.expressions import column_name
from job.spec.value_format import Operation
from job.spec.value_schema import Column, envelope_type
from job.sql.literals import quoted
from job.sql.types import struct_of

_TRUNCATE = "truncate"
CODES = {
    "c": Operation.CREATE, "r": Operation.READ, "u": Operation.UPDATE, "d": Operation.DELETE,
    "t": _TRUNCATE, "m": "message",
}  # fmt: skip
"""Operations by their code in `op`. The last two have no row."""
_OPERATION, _SOURCE_MS, _IMAGE = "envelope_operation", "envelope_source_ms", "envelope_image"


def value_columns(side: SidePlan) -> json_sql.Columns:
    """The columns of a JSON value: those of the row, or of the envelope around it."""
    if side.envelope is None:
        return side.schema.columns
    row = struct_of((column.name, json_sql.field_type(column)) for column in side.schema.columns)
    envelope = envelope_type(row)
    fields = (*envelope.fields, ("payload", envelope))
    return tuple(Column(name, kind) for name, kind in fields)


def opened(side: SidePlan) -> list[list[str]]:
    """Projections that replace the struct `parsed` by the one of the row, and add the operation and
    the time of the change in the database. None, if the values have no envelope."""
    if side.envelope is None:
        return []
    codes = " ".join(f"WHEN '{code}' THEN '{name}'" for code, name in CODES.items())
    envelope, row = ("parsed", _IMAGE) if side.format.has_registry else _of_json(side)
    return [
        ["*", f"{envelope} AS envelope"],
        [
            "* EXCEPT (envelope)",
            f"CASE envelope.op {codes} END AS {_OPERATION}",
            f"envelope.source.ts_ms AS {_SOURCE_MS}",
            f"if(envelope.op = 'd', envelope.before, envelope.after) AS {_IMAGE}",
        ],
        ["* EXCEPT (parsed)", f"{row} AS parsed"],
    ]


def _of_json(side: SidePlan) -> tuple[str, str]:
    """SQL of the envelope, and of the row with from_json's column for unreadable text."""
    inner = json_sql.unreadable(side.schema.columns)
    outer = json_sql.unreadable(value_columns(side))
    fields = ", ".join(f"'{name}', parsed.{name}" for name in ("before", "after", "op", "source"))
    row = ", ".join(f"{quoted(name)}, {_IMAGE}.`{name}`" for name in side.schema.names)
    parsed = f"named_struct({row}, {quoted(inner)}, parsed.`{outer}`)"
    return (
        f"coalesce(parsed.payload, named_struct({fields}))",
        f"CASE WHEN parsed IS NOT NULL THEN {parsed} END",
    )


def record_columns(side: SidePlan) -> dict[str, str]:
    """SQL of the columns with metadata of the change, by name."""
    if side.envelope is None:
        return {}
    return {
        "record_operation": _OPERATION,
        "record_source_timestamp": of_millis(_SOURCE_MS),
    }


def written_source_timestamp() -> str:
    """The time of the change as it is written."""
    return f"cast({_SOURCE_MS} AS STRING)"


def is_broken(side: SidePlan) -> str | None:
    """Condition: the value is no envelope, or has no row. None: values have no envelope."""
    if side.envelope is None:
        return None
    with_row = [*Operation, *bad_operations(is_table=side.table is not None)]
    names = ", ".join(f"'{operation}'" for operation in with_row)
    return f"{_OPERATION} IS NULL OR ({_OPERATION} IN ({names}) AND {_IMAGE} IS NULL)"


def bad_operations(*, is_table: bool) -> list[str]:
    """Operations without a row whose records are bad: a table cannot apply a truncate, because it
    names no rows. The filter of the operations drops the others, and for a stream also this one."""
    return [_TRUNCATE] if is_table else []


def lacks_key(side: SidePlan) -> str | None:
    """Condition: the row of a delete has a null in its key that matches nothing. None: there is no
    such condition."""
    parts = [side.key[index] for index in side.null_checked if not side.key[index].can_fail]
    if side.envelope is None or not parts:
        return None
    nulls = " OR ".join(f"({part.sql}) IS NULL" for part in parts)
    return f"({_operation(side)} = '{Operation.DELETE}' AND ({nulls}))"


def row_text(side: SidePlan) -> str:
    """The JSON text of the row."""

    def image(name: str) -> str:
        paths = (f"$.payload.{name}", f"$.{name}")
        return f"coalesce({', '.join(f'get_json_object(text, {quoted(path)})' for path in paths)})"

    return f"if({_operation(side)} = '{Operation.DELETE}', {image('before')}, {image('after')})"


def messages(side: SidePlan) -> Iterator[tuple[str, str]]:
    """(condition, message) of the values that have schema_mismatch because of their envelope."""
    if side.envelope is None:
        return
    operation = _operation(side)
    yield f"{operation} IS NULL", quoted("the value is no envelope of Debezium with a known `op`")
    row = "parsed" if side.format.has_registry else row_text(side)
    yield (
        f"{row} IS NULL",
        f"concat('the envelope of the operation ', {operation}, ' has no row')",
    )
    lacking = lacks_key(side)
    if lacking is not None:
        columns = ", ".join(part.text for part in side.key)
        yield (
            lacking,
            quoted(
                f"the deleted row in `before` has no value of the key ({columns}): let the "
                "database log the whole row, e.g. with REPLICA IDENTITY FULL"
            ),
        )


def _operation(side: SidePlan) -> str:
    return f"`{column_name(side.side, 'record_operation')}`"
