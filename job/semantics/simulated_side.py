"""Reads the records of a side: the steps of the job on a record, run by Spark's own expressions."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from job.plan import record_checks, record_sql
from job.plan.plan import JoinPlan, SidePlan
from job.plan.position import position_column
from job.semantics.input_records import InputRecord
from job.semantics.rows import Key
from job.spec.expressions import column_name
from job.spec.sides import Side
from job.spec.value_format import Format
from job.sql.rows import SqlRows

_RECORD = (
    "key STRING, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


@dataclass(eq=False, slots=True)  # compared by identity: two records are two rows
class DecodedRow:
    """A readable record, and what the job finds out about it."""

    record: InputRecord
    number: int
    """Number of the row in the store of its side."""
    event_time_us: int
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
    row_id: Key
    """Of `deduplicate`. Empty: the side has none, or the id contains a null."""
    late_time_us: int = field(default=0)
    """The event time, or the end of the tumbling window: it decides whether the row is late."""


@dataclass(frozen=True)
class BadRecord:
    record: InputRecord
    reason: str
    """One of reasons.REASONS."""
    field: str | None
    """Field of the spec that fails on the record. None: the record cannot be read."""


class SideReader:
    """Reads records of one side into a store of `rows`."""

    def __init__(self, plan: JoinPlan, side: Side, rows: SqlRows) -> None:
        self._side = plan.side(side)
        if self._side.format.has_registry:  # a simulation reads JSON
            self._side = replace(self._side, format=Format.JSON)
        self._rows = rows
        self._store = rows.store()
        self._count = 0
        by = self._side.deduplication.by if self._side.deduplication else ()
        self._parts = [f"key_{index}" for index in range(len(self._side.key))]
        self._ids = [f"id_{index}" for index in range(len(by))]
        facts = _facts(plan, self._side)
        encoded = dict(zip(self._ids, (part.sql for part in by), strict=True))
        last = [
            *(f"`{column_name(side, name)}`" for name in _columns(self._side)),
            position_column(side),
            *(f"{sql} AS {name}" for name, sql in facts.items()),
            *(f"CASE WHEN is_kept THEN ({sql}) END AS {name}" for name, sql in encoded.items()),
        ]
        returned = [name for name in facts if name not in self._parts]
        self.program = rows.program(
            _RECORD, [*_steps(self._side), last], returned, [*self._parts, *self._ids]
        )

    @property
    def store(self) -> int:
        return self._store

    def close(self) -> None:
        """Forget the rows."""
        self._rows.drop(self._store)

    def read(self, records: Sequence[InputRecord]) -> Iterator[DecodedRow | BadRecord]:
        values = [_values(record) for record in records]
        answers = self._rows.run(self.program, values, keep_in=self._store)
        for record, answer in zip(records, answers, strict=True):
            number, self._count = self._count, self._count + 1
            if answer["reason"] is not None:
                yield BadRecord(record, answer["reason"], answer["failed_field"])
            else:
                yield self._row(record, number, answer)

    def _row(self, record: InputRecord, number: int, answer: Mapping[str, Any]) -> DecodedRow:
        row_id = tuple(answer[name] for name in self._ids)
        return DecodedRow(
            record,
            number,
            answer["event_time_us"],
            answer["passes"],
            answer["has_null_key"],
            answer["has_unequal_null"],
            answer["mirrored"],
            answer["one_sided"],
            tuple(answer[name] for name in self._parts),
            answer["key_text"],
            () if None in row_id else row_id,
        )


def _columns(side: SidePlan) -> Iterator[str]:
    yield from side.schema.names
    yield from record_sql.record_columns(side)


def _steps(side: SidePlan) -> Iterator[list[str]]:
    """As `decoded` in job/dataflow/sides.py, without a registry."""
    yield record_sql.parsed(side)
    yield record_sql.restored(side)
    yield record_sql.typed(side)
    yield record_sql.classified(side)
    yield from record_checks.steps(side)
    event_time = f"`{side.event_time_column}`"
    passes = f"CASE WHEN reason IS NULL THEN {record_checks.passes(side)} END"
    yield [
        f"* EXCEPT ({event_time})",
        f"{record_sql.event_time_of_readable(side)} AS {event_time}",
        f"coalesce({passes}, false) AS is_kept",
    ]


def _facts(plan: JoinPlan, side: SidePlan) -> dict[str, str]:
    """SQL of the returned columns. Nothing of a record that is not kept is evaluated."""
    values = record_checks.key_values(side)
    unequal = [
        f"{value} IS NULL"
        for value, null_safe in zip(values, plan.null_safe, strict=True)
        if not null_safe
    ]
    conditions = {
        "has_unequal_null": " OR ".join(unequal) or "false",
        "mirrored": _all(f"coalesce({part.sql}, false)" for part in side.mirrored),
        "one_sided": _all(plan.one_sided_condition(side.side)),
    }
    texts = ", ',', ".join(f"coalesce(cast({value} AS STRING), 'null')" for value in values)
    keys = [
        value if part.type == kind else f"cast({value} AS {kind})"
        for value, part, kind in zip(values, side.key, plan.key_types, strict=True)
    ]
    return {
        "reason": "reason",
        "failed_field": record_checks.FAILED_FIELD if side.checks.any else "cast(NULL AS STRING)",
        "event_time_us": f"unix_micros(`{side.event_time_column}`)",
        "passes": "is_kept",
        "has_null_key": f"(reason IS NULL AND {record_checks.counted_null_key(side)})",
        **{name: f"(is_kept AND ({sql}))" for name, sql in conditions.items()},
        "key_text": f"CASE WHEN is_kept THEN concat({texts}) END",
        **{f"key_{index}": f"CASE WHEN is_kept THEN {key} END" for index, key in enumerate(keys)},
    }


def _all(conditions: Sequence[str] | Iterator[str]) -> str:
    return " AND ".join(f"({condition})" for condition in conditions) or "true"


def _values(record: InputRecord) -> list[Any]:
    value = (
        record.value.encode(errors="surrogatepass")
        if isinstance(record.value, str)
        else record.value
    )
    headers = [
        [name, None if text is None else base64.b64encode(text.encode()).decode()]
        for name, text in record.headers
    ]
    return [
        record.key,
        None if value is None else base64.b64encode(value).decode(),
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_us,
        headers,
    ]
