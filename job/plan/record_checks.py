"""SQL that detects records on which an expression of their side fails, before the join.

Only text. The steps are some of those of record_sql.py and use its columns. An expression that can
fail is evaluated by the function try_eval (job/spark/try_eval.py), in a branch of CASE, so that
Spark evaluates no part of it elsewhere.
"""

from collections.abc import Iterator

from job.plan.side_plan import ComputedColumn, SidePlan
from job.plan.value_sql import TOMBSTONE, value_sql
from job.spec.expressions import column_name
from job.spec.value_format import Operation
from job.sql.literals import quoted

EXPRESSION_FAILED = "expression_failed"
FAILED_FIELD = "failed_field"
"""Column with the field of the spec whose expression fails. Null: none fails."""
IS_TOMBSTONE = "is_tombstone"
"""Column of a table: whether the record has no value, and so deletes its key."""
_PASSES = "passes_filter"
"""Column: whether a record passes the filter. Null: the filter fails on it."""
_HAS_COLUMNS = "(value_reason IS NULL OR value_reason = 'schema_mismatch')"
"""Condition: the value of a record has been read, except for columns of another type."""


def computed(side: SidePlan) -> list[list[str]]:
    """Projections that add the computed columns, level by level, and the text of a computed event
    time."""
    steps: list[list[str]] = []
    for level in sorted({column.level for column in side.computed}):
        columns = [column for column in side.computed if column.level == level]
        tried = [
            f"CASE WHEN {_HAS_COLUMNS} THEN try_eval(struct(({column.value.sql}) AS value)) END "
            f"AS {_tried(side, column)}"
            for column in columns
            if column.value.can_fail
        ]
        named = [f"{_value(side, column)} AS {_column(side, column)}" for column in columns]
        steps += [*([["*", *tried]] if tried else []), ["*", *named]]
    if side.computes_event_time:
        steps.append(["*", f"cast(`{side.event_time_column}` AS STRING) AS written_event_time"])
    return steps


def failed_column(side: SidePlan) -> str:
    """Field of the computed column, or of the event time, that fails on a record with columns.
    Null: none fails."""
    cases = " ".join(f"WHEN {fails} THEN {quoted(name)}" for name, _, fails in _columns(side))
    return f"CASE {cases} END" if cases else "NULL"


def steps(side: SidePlan) -> list[list[str]]:
    """Consecutive projections that set `reason`. It is `problem`, or expression_failed if the
    filter, the key or the condition fails. Key and condition are evaluated only on records that
    enter the join. A record of another kind, on which the filter is false, has no reason."""
    filters, problem = [], "problem"
    if side.drops_records:
        filters = [["*", f"{_filter(side)} AS {_PASSES}"]]
        problem = f"CASE WHEN {_PASSES} IS NOT FALSE THEN problem END"
    read = [*filters, ["*", f"{problem} AS reason"]]
    if not side.checks.any:
        return read
    keys = [
        f"CASE WHEN reason IS NULL AND {enters(side)} "
        f"THEN try_eval(struct(({side.key[index].sql}) AS value)) END AS {_key_column(index)}"
        for index in side.checks.keys
    ]
    failures = " ".join(f"WHEN {fails} THEN {quoted(name)}" for name, _, fails in _failures(side))
    others = f"CASE {failures} END" if failures else "NULL"
    field = (
        f"CASE WHEN reason = '{EXPRESSION_FAILED}' THEN {failed_column(side)} "
        f"WHEN reason IS NULL THEN {others} END AS {FAILED_FIELD}"
    )
    reason = f"CASE WHEN {FAILED_FIELD} IS NULL THEN reason ELSE '{EXPRESSION_FAILED}' END"
    return [*read, ["*", *keys], ["*", field], ["* EXCEPT (reason)", f"{reason} AS reason"]]


def passes(side: SidePlan) -> str:
    """Whether a readable record passes the side's filter. Never null."""
    return f"coalesce({_PASSES}, false)" if side.drops_records else "true"


def enters(side: SidePlan) -> str:
    """Whether a readable record enters the join, as far as its filter decides. Never null. A record
    of a table that does not pass the filter enters and deletes the row of its key."""
    return passes(side) if side.table is None else "true"


def row_filter(side: SidePlan) -> str | None:
    """The side's filter over readable records. None: all enter the join."""
    return _PASSES if side.drops_records and side.table is None else None


def deletes_key(side: SidePlan) -> str:
    """Whether a readable record of a table deletes the row of its key. Never null."""
    assert side.table is not None, "only a table has deletes"
    conditions = [IS_TOMBSTONE] if side.has_tombstones else ["false"]
    if side.drops_records:
        conditions.append(f"NOT {passes(side)}")
    if side.envelope is not None:
        operation = f"`{column_name(side.side, 'record_operation')}`"
        conditions.append(f"{operation} = '{Operation.DELETE}'")
    if side.table.delete is not None:
        conditions.append(f"coalesce({side.table.delete.sql}, false)")
    return " OR ".join(conditions)


def filter_is_null(side: SidePlan) -> str:
    """Whether the filter of the spec is null on a readable record. Never null."""
    if side.filter is None:
        return "false"
    value = f"({side.filter.sql})"
    if side.checks.filter.failing is not None:
        value = f"(CASE WHEN reason IS NULL THEN try_eval(struct({value} AS value)) END).value"
    return f"reason IS NULL AND {value} IS NULL"


def is_filtered(side: SidePlan) -> str:
    """Whether the filter drops a record."""
    return f"reason IS NULL AND NOT {passes(side)}"


def key_values(side: SidePlan) -> list[str]:
    """The parts of the key, for records that enter the join."""
    return [
        f"{_key_column(index)}.value" if index in side.checks.keys else f"({part.sql})"
        for index, part in enumerate(side.key)
    ]


def null_checked(side: SidePlan) -> dict[int, str]:
    """The values of the key's parts whose nulls are counted, by index, for records that pass the
    filter."""
    values = key_values(side)
    return {index: values[index] for index in side.null_checked}


def has_null_key(side: SidePlan) -> str:
    """Whether a record that passes the filter has a null that is counted in its key."""
    nulls = [f"{value} IS NULL" for value in null_checked(side).values()]
    return f"({' OR '.join(nulls)})" if nulls else "false"


def counted_null_key(side: SidePlan) -> str:
    """Whether a readable record has a null that is counted in its key."""
    return f"{enters(side)} AND {has_null_key(side)}"


def failure_message(side: SidePlan) -> str:
    """Names the field and the expression that failed."""
    if not side.checks.any:
        return "''"
    texts = " ".join(
        f"WHEN {quoted(name)} THEN {quoted(text)}"
        for name, text, _ in (*_columns(side), *_failures(side))
    )
    return (
        f"concat({FAILED_FIELD}, ' cannot be evaluated on this record: ', "
        f"CASE {FAILED_FIELD} {texts} END)"
    )


def _filter(side: SidePlan) -> str:
    """Whether a record passes the filter. Null: the filter fails on the record; or the record has a
    problem, and the filter does not show that it is of another kind."""
    checked = side.checks.filter
    parts = [part for part in (checked.safe, checked.failing) if part is not None]
    true = " AND ".join(["true", *(f"coalesce({part.sql}, false)" for part in parts)])
    whole = f"coalesce({true}, false)"
    is_false = f"NOT coalesce({' AND '.join(['true', *(f'({part.sql})' for part in parts)])}, true)"
    if checked.failing is not None:
        whole, is_false = f"try_eval({whole})", f"coalesce(try_eval({is_false}), false)"
    tombstone = f"WHEN value_reason = '{TOMBSTONE}' THEN false " if side.drops_tombstones else ""
    if side.has_tombstones:
        whole = f"({IS_TOMBSTONE} OR {whole})"
    unread = "".join(f" OR {each}" for each in _unread(side))
    return (
        f"CASE WHEN problem IS NULL THEN {whole} {tombstone}"
        f"WHEN {_HAS_COLUMNS} AND {value_sql(side).mismatch_message(side)} IS NULL "
        f"AND {is_false} AND NOT (false{unread}) THEN false END"
    )


def _unread(side: SidePlan) -> Iterator[str]:
    """Conditions: a column in the filter has no value although the record has one."""
    for first, *fields in side.filter_columns:
        path = "".join(f".`{field}`" for field in fields)
        is_null = f"`{column_name(side.side, first)}`{path} IS NULL"
        yield f"({is_null} AND {value_sql(side).is_present(side, first)})"
    used = {name for _, name in side.filter.columns} if side.filter else set()
    for column in reversed(side.computed):
        if column.name in used:
            used |= {name for _, name in column.value.columns}
            if column.value.can_fail:
                yield f"{_tried(side, column)} IS NULL"
    if side.has_typed_keys and "record_key" in used:
        yield "key_reason IS NOT NULL"


def _failures(side: SidePlan) -> Iterator[tuple[str, str, str]]:
    """(field, text, SQL condition that it fails on a record without a reason), in order of
    evaluation."""
    if side.filter is not None and side.checks.filter.failing:
        yield f"{side.side}.filter", side.filter.text, f"{_PASSES} IS NULL"
    for index in side.checks.keys:
        fails = f"{enters(side)} AND {_key_column(index)} IS NULL"
        yield f"{side.side}.key[{index}]", side.key[index].text, fails
    if side.checks.condition is not None:
        fails = f"{enters(side)} AND try_eval(struct({side.checks.condition.sql})) IS NULL"
        yield "join.condition", side.checks.condition.text, fails


def _columns(side: SidePlan) -> Iterator[tuple[str, str, str]]:
    """As `_failures`, for the computed columns of a record with columns."""
    for column in side.computed:
        if column.value.can_fail:
            is_time = side.has_event_time_expression and column.name == side.event_time
            name = "event_time" if is_time else f"columns.{column.name}"
            yield f"{side.side}.{name}", column.value.text, f"{_tried(side, column)} IS NULL"


def _value(side: SidePlan, column: ComputedColumn) -> str:
    return f"{_tried(side, column)}.value" if column.value.can_fail else column.value.sql


def _column(side: SidePlan, column: ComputedColumn) -> str:
    return f"`{column_name(side.side, column.name)}`"


def _tried(side: SidePlan, column: ComputedColumn) -> str:
    return f"tried_column_{side.computed.index(column)}"


def _key_column(index: int) -> str:
    return f"tried_key_{index}"
