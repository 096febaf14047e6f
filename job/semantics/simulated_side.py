"""Reads the records of a side: the steps of the job on a record, run by Spark's own expressions."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from job.dead_letters.sql import message, with_reason
from job.plan import record_checks, record_sql
from job.plan.plan import JoinPlan, guarded
from job.plan.position import position_column
from job.plan.side_plan import SidePlan
from job.semantics.input_records import InputRecord, content_bytes
from job.semantics.rows import Key
from job.semantics.topic_records import TopicRecords
from job.spec.expressions import column_name
from job.spec.sides import Side
from job.spec.value_format import Format, RecordKeyFormat
from job.sql.rows import SqlRows

RECORD = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
"""The columns of a record."""


@dataclass(eq=False, slots=True)  # compared by identity: two records are two rows
class DecodedRow:
    """A readable record, and what the job finds out about it."""

    record: InputRecord
    number: int
    """Number of the row in the store of its side."""
    event_time_us: int
    late_time_us: int
    """The event time, or the end of the tumbling window: it decides whether the row is late."""
    passes_filter: bool
    """The filter of the side."""
    has_null_key: bool
    """A null in its key that is counted, and handled by on_null_key."""
    has_unequal_null: bool
    """A null in a part of its key that matches no other null."""
    passes_mirrored: bool
    """The filters of the other side that apply to this one, too (plan.mirrored)."""
    passes_one_sided: bool
    """The parts of join.condition over columns of no other side."""
    key: Key
    """Equal values are equal keys of Spark."""
    key_text: str
    deletes_key: bool
    """Whether it is a record of a table that removes the row of its key."""
    row_id: Key
    """Of `deduplicate`. Empty: the side has none, or the id contains a null."""
    message: str = ""
    """As in its dead letter, if its null key makes it one. Empty also if the reader does not
    explain."""
    nulls: frozenset[str] = frozenset()
    """Columns of the value that are null, if the reader explains."""
    filter_is_null: bool = False
    """Whether the filter of the side drops the record because it is null."""


@dataclass(frozen=True)
class BadRecord:
    record: InputRecord
    reason: str
    """One of reasons.REASONS."""
    field: str | None
    """Field of the spec that fails on the record. None: the record cannot be read."""
    key_text: str | None = None
    """Key, as far as it can be read. None: the reader does not explain."""
    message: str = ""
    """As in the dead letter. Empty: the reader does not explain."""


@dataclass(frozen=True)
class OtherRecord:
    """A record with a problem, on which the side's filter is false: it is of another kind."""

    record: InputRecord
    key_text: str | None = None
    """As of a bad record."""
    nulls: frozenset[str] = frozenset()
    """As of a row."""


class SideReader:
    """Reads records of one side into a store of `rows`."""

    def __init__(
        self,
        plan: JoinPlan,
        side: Side,
        rows: SqlRows,
        *,
        explains: bool = False,
        topics: TopicRecords | None = None,
    ) -> None:
        """`explains`: also read the keys of bad and filtered records, the messages of dead letters,
        and the names of null columns. `topics`: decodes records of topics. None: the records are
        those of a simulation, which has JSON instead of values and keys with the id of a schema."""
        self._explains = explains
        self._topics = topics
        self._side = plan.side(side)
        if topics is None and self._side.format.has_schema_id:
            self._side = replace(self._side, format=Format.JSON)
        if topics is None and self._side.has_typed_keys:
            self._side = replace(self._side, key_format=RecordKeyFormat.JSON)
        self._rows = rows
        self._store = rows.store()
        self._count = 0
        by = self._side.deduplication.by if self._side.deduplication else ()
        self._parts = [f"key_{index}" for index in range(len(self._side.key))]
        self._ids = [f"id_{index}" for index in range(len(by))]
        facts = _facts(plan, self._side)
        if explains:
            facts |= _explained(self._side)
        encoded = dict(zip(self._ids, (part.sql for part in by), strict=True))
        last = [
            *(f"`{column_name(side, name)}`" for name in _columns(self._side)),
            position_column(side),
            *(f"{sql} AS {name}" for name, sql in facts.items()),
            *(f"CASE WHEN is_kept THEN ({sql}) END AS {name}" for name, sql in encoded.items()),
        ]
        returned = [name for name in facts if name not in self._parts]
        self.program = rows.program(
            ", ".join([RECORD, *(() if topics is None else topics.columns(side))]),
            [
                *(() if topics is None else topics.steps(side)),
                *_steps(plan, self._side, explains=explains),
                last,
            ],
            returned,
            [*self._parts, *self._ids],
        )

    @property
    def store(self) -> int:
        return self._store

    def close(self) -> None:
        """Forget the rows."""
        self._rows.drop(self._store)

    def read(
        self, records: Sequence[InputRecord]
    ) -> Iterator[DecodedRow | BadRecord | OtherRecord]:
        values = [record_values(record) for record in records]
        if self._topics is not None:
            for row, decoded in zip(
                values, self._topics.values(self._side.side, records), strict=True
            ):
                row += decoded
        answers = self._rows.run(self.program, values, keep_in=self._store)
        for record, answer in zip(records, answers, strict=True):
            number, self._count = self._count, self._count + 1
            if self._explains and self._topics is not None:
                record = replace(record, key=answer["record_key"])
            named, text = answer.get("named_key"), answer.get("message") or ""
            if answer["reason"] is not None:
                yield BadRecord(record, answer["reason"], answer["failed_field"], named, text)
            elif answer["event_time_us"] is None:
                yield OtherRecord(record, named, self._nulls(answer))
            else:
                yield self._row(record, number, answer)

    def _row(self, record: InputRecord, number: int, answer: Mapping[str, Any]) -> DecodedRow:
        row_id = tuple(answer[name] for name in self._ids)
        return DecodedRow(
            record,
            number,
            answer["event_time_us"],
            answer["late_time_us"],
            answer["passes"],
            answer["has_null_key"],
            answer["has_unequal_null"],
            answer["mirrored"],
            answer["one_sided"],
            tuple(answer[name] for name in self._parts),
            answer["named_key"] if self._explains else answer["key_text"],
            answer["deletes"],
            () if None in row_id else row_id,
            answer.get("message") or "",
            self._nulls(answer),
            answer["filter_is_null"],
        )

    def _nulls(self, answer: Mapping[str, Any]) -> frozenset[str]:
        names = (column.name for column in self._side.schema.columns)
        flags = zip(names, answer.get("nulls", ()), strict=self._explains)
        return frozenset(name for name, is_null in flags if is_null == "1")


def _columns(side: SidePlan) -> Iterator[str]:
    yield from (column.name for column in side.columns)
    yield from record_sql.record_columns(side)


def _steps(plan: JoinPlan, side: SidePlan, *, explains: bool) -> Iterator[list[str]]:
    """As `decoded` in job/dataflow/sides.py, once the values and the keys are decoded."""
    yield from record_sql.steps(side, record_sql.EXPLAINED if explains else ())
    passes = f"CASE WHEN reason IS NULL THEN {record_checks.enters(side)} END"
    yield ["*", f"coalesce({passes}, false) AS is_kept"]
    if explains:
        yield ["*", "false AS is_late", "cast(NULL AS TIMESTAMP) AS late_watermark"]
        yield with_reason(plan, side)


def _explained(side: SidePlan) -> dict[str, str]:
    """SQL of the key of any record, also of one whose key the job does not evaluate; of the message
    of a dead letter; of the key of the record; and of a text with 1 for each null column."""
    parts = [
        guarded(f"try_eval(struct(({part.sql}) AS value))", side.side) + ".value"
        if part.can_fail
        else f"({part.sql})"
        for part in side.key
    ]
    nulls = [
        "''",
        *(
            f"if(`{column_name(side.side, column.name)}` IS NULL, '1', '0')"
            for column in side.schema.columns
        ),
    ]
    return {
        "named_key": _key_text(parts),
        "message": f"CASE WHEN dead_reason IS NOT NULL THEN {message(side)} END",
        "record_key": f"cast(`{column_name(side.side, 'record_key')}` AS STRING)",
        "nulls": f"concat({', '.join(nulls)})",
    }


def _key_text(values: Sequence[str]) -> str:
    texts = ", ',', ".join(f"coalesce(cast({value} AS STRING), 'null')" for value in values)
    return f"concat({texts})"


def _facts(plan: JoinPlan, side: SidePlan) -> dict[str, str]:
    """SQL of the returned columns. Nothing of a record that is not kept is evaluated."""
    values = record_checks.key_values(side)
    unequal = [
        f"{value} IS NULL"
        for value, null_safe in zip(values, plan.null_safe, strict=True)
        if not null_safe
    ]
    deletes = "false" if side.table is None else record_checks.deletes_key(side)
    conditions = {
        "deletes": deletes,
        "has_unequal_null": " OR ".join(unequal) or "false",
        "mirrored": _all(f"coalesce({part.sql}, false)" for part in side.mirrored),
        "one_sided": _all(plan.one_sided_condition(side.side)),
    }
    late_time = f"unix_micros(`{side.event_time_column}`)"
    if plan.window is not None:
        late_time = f"1000L * ({plan.window.end_sql(f'`{side.event_time_column}`')})"
    keys = [
        value if part.type == kind else f"cast({value} AS {kind})"
        for value, part, kind in zip(values, side.key, plan.key_types, strict=True)
    ]
    return {
        "reason": "reason",
        "failed_field": record_checks.FAILED_FIELD if side.checks.any else "cast(NULL AS STRING)",
        "event_time_us": f"unix_micros(`{side.event_time_column}`)",
        "late_time_us": late_time,
        "passes": "is_kept",
        "filter_is_null": f"({record_checks.filter_is_null(side)})",
        "has_null_key": f"(reason IS NULL AND {record_checks.counted_null_key(side)})",
        **{name: f"(is_kept AND ({sql}))" for name, sql in conditions.items()},
        "key_text": f"CASE WHEN is_kept THEN {_key_text(values)} END",
        **{f"key_{index}": f"CASE WHEN is_kept THEN {key} END" for index, key in enumerate(keys)},
    }


def _all(conditions: Sequence[str] | Iterator[str]) -> str:
    return " AND ".join(f"({condition})" for condition in conditions) or "true"


def record_values(record: InputRecord) -> list[Any]:
    """The values of RECORD."""
    value = (
        record.value.encode(errors="surrogatepass")
        if isinstance(record.value, str)
        else record.value
    )
    headers = [
        [
            name,
            None
            if text is None
            else base64.b64encode(text.encode(errors="surrogateescape")).decode(),
        ]
        for name, text in record.headers
    ]
    key = content_bytes(record.key)
    return [
        None if key is None else base64.b64encode(key).decode(),
        None if value is None else base64.b64encode(value).decode(),
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_us,
        headers,
    ]
