"""Reads records of Kafka by the SQL of the job, without a Spark session."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from job.dead_letters import sql as dead_letter_sql
from job.errors import StreamjoinError
from job.formats.decoded_json import json_text
from job.formats.decoder import Decoder
from job.formats.registry import RegistryAccess
from job.formats.schemas import ReaderSchema
from job.plan import record_checks, record_sql
from job.plan.plan import JoinPlan
from job.plan.side_plan import SidePlan
from job.plan.value_sql import DECODED, DECODED_KEY
from job.semantics.input_records import InputRecord
from job.semantics.simulated_side import record_values
from job.spec.expressions import column_name
from job.spec.sides import Side
from job.sql.rows import EvaluationError, SqlRows

_RECORD = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_DECODED_FIELDS = {
    "reason": "STRING",
    "message": "STRING",
    "schema_id": "BIGINT",
    "row": "STRING",
}
"""Columns of a record after those of _RECORD, for its value and its key if their schemas are in a
registry: their names begin with that of the job's column."""


@dataclass(frozen=True)
class ReadRecord:
    record: InputRecord
    reason: str | None
    """Why the record is bad, or becomes a dead letter. None: it is readable."""
    message: str
    """The error of a record with a reason, as in a dead letter."""
    passes: bool
    """Whether the record is readable and passes the filter of its side."""
    event_time_us: int | None
    """None: the record has a problem."""
    key: tuple[str, ...] | None
    """Equal texts are equal keys of the join. None: the record does not enter the join, or a part
    of its key is null."""
    key_text: str | None
    nulls: frozenset[str]
    """Columns of the value that are null. Every column of an unreadable value."""


class RecordReader:
    """Reads the records of one side."""

    def __init__(
        self, plan: JoinPlan, side: Side, rows: SqlRows, registry: RegistryAccess | None
    ) -> None:
        """`registry`: required if values or keys of the side have their schemas in a registry."""
        self._side, self._rows = plan.side(side), rows
        self._decoders: dict[str, Decoder] = {}
        for column, reader in ((DECODED, self._side.reader), (DECODED_KEY, self._side.key_reader)):
            if reader is not None:
                assert registry is not None, "the caller has access to it"
                self._decoders[column] = Decoder(reader, registry)
        facts = _facts(plan, self._side)
        keys = [f"key_{index}" for index in range(len(self._side.key))]
        self._keys, self._columns = keys, [column.name for column in self._side.schema.columns]
        self._program = rows.program(
            ", ".join([_RECORD, *(_decoded_columns(column) for column in self._decoders)]),
            [
                *(_with_decoded(name, each.reader) for name, each in self._decoders.items()),
                *record_sql.steps(self._side, record_sql.EXPLAINED),
                ["*", "false AS is_late", "cast(NULL AS TIMESTAMP) AS late_watermark"],
                dead_letter_sql.with_reason(plan, self._side),
                [f"{sql} AS {name}" for name, sql in facts.items()],
            ],
            [name for name in facts if name not in keys],
            keys,
        )

    def read(self, records: Sequence[InputRecord]) -> list[ReadRecord]:
        """Raises RegistryError, SecurityError, or StreamjoinError if an expression fails on a
        record as it would fail the query."""
        store = self._rows.store()
        try:
            answers = self._rows.run(self._program, self._values(records), keep_in=store)
        except EvaluationError as error:
            message = f"the query would fail on a record of {self._side.topic}: {error}"
            raise StreamjoinError(message) from error
        finally:
            self._rows.drop(store)
        return [self._read(record, answer) for record, answer in zip(records, answers, strict=True)]

    def _values(self, records: Sequence[InputRecord]) -> list[list[Any]]:
        rows = [_with_binary_key(record_values(record), record) for record in records]
        for column, decoder in self._decoders.items():
            is_key = column == DECODED_KEY
            content = (_bytes(each.key if is_key else each.value) for each in records)
            kinds = dict(decoder.reader.decoded.fields)
            for row, it in zip(rows, decoder.decoded(content), strict=True):
                row += [it.reason, it.message, it.schema_id, json_text(it.columns, kinds)]
        return rows

    def _read(self, record: InputRecord, answer: Mapping[str, Any]) -> ReadRecord:
        key = tuple(answer[name] for name in self._keys)
        nulls = zip(self._columns, answer["nulls"], strict=True)
        return ReadRecord(
            record=record,
            reason=answer["reason"],
            message=answer["message"],
            passes=answer["passes"],
            event_time_us=answer["event_time_us"],
            key=None if answer["has_null"] or not answer["passes"] else key,
            key_text=answer["key_text"],
            nulls=frozenset(name for name, is_null in nulls if is_null == "1"),
        )


def _facts(plan: JoinPlan, side: SidePlan) -> dict[str, str]:
    """SQL of the returned columns."""
    passes = f"(dead_reason IS NULL AND {record_checks.passes(side)})"
    values = record_checks.key_values(side)
    keys = [
        value if part.type == kind else f"cast({value} AS {kind})"
        for value, part, kind in zip(values, side.key, plan.key_types, strict=True)
    ]
    unequal = [
        f"{value} IS NULL"
        for value, null_safe in zip(values, plan.null_safe, strict=True)
        if not null_safe
    ]
    texts = ", ',', ".join(f"coalesce(cast({value} AS STRING), 'null')" for value in values)
    nulls = ", ".join(
        f"if(`{column_name(side.side, column.name)}` IS NULL, '1', '0')"
        for column in side.schema.columns
    )
    message = dead_letter_sql.message(side)
    return {
        "reason": "dead_reason",
        "message": f"CASE WHEN dead_reason IS NULL THEN '' ELSE {message} END",
        "passes": passes,
        "event_time_us": f"unix_micros(`{side.event_time_column}`)",
        "has_null": f"({passes} AND ({' OR '.join(unequal) or 'false'}))",
        "key_text": f"CASE WHEN {passes} THEN concat({texts}) END",
        "nulls": f"concat('', {nulls})" if nulls else "''",
        **{f"key_{index}": f"CASE WHEN {passes} THEN {key} END" for index, key in enumerate(keys)},
    }


def _decoded_columns(column: str) -> str:
    return ", ".join(f"{column}_{name} {kind}" for name, kind in _DECODED_FIELDS.items())


def _with_decoded(column: str, reader: ReaderSchema) -> list[str]:
    """The column that the job's decoder gives, from those of _DECODED_FIELDS."""
    kind = record_sql.decoded_type(reader).partition("columns ")[2]
    values = {
        "reason": f"{column}_reason",
        "message": f"{column}_message",
        "schema_id": f"{column}_schema_id",
        "columns": f"from_json({column}_row, '{kind}')",
    }
    struct = ", ".join(f"'{name}', {sql}" for name, sql in values.items())
    fields = ", ".join(f"{column}_{name}" for name in _DECODED_FIELDS)
    return [f"* EXCEPT ({fields})", f"named_struct({struct}) AS {column}"]


def _with_binary_key(values: list[Any], record: InputRecord) -> list[Any]:
    if record.key is None:
        return values
    key = record.key.encode(errors="surrogateescape")
    return [base64.b64encode(key).decode(), *values[1:]]


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode(errors="surrogateescape") if isinstance(content, str) else content


def with_topics_of(plan: JoinPlan, topics: Mapping[Side, Sequence[str]]) -> JoinPlan:
    """The plan that reads `topics` on the sides with a pattern."""
    named = {
        side: replace(source, names=()).with_added(topics[side])
        for side, source in plan.topics.items()
        if source.pattern is not None
    }
    return plan.with_topics({**plan.topics, **named})
