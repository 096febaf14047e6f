"""Parts of `streamjoin plan` about a side that is a table."""

from collections.abc import Iterator
from datetime import timedelta

from job.plan.capacity import Load
from job.plan.explain_load import rounded, size
from job.plan.plan import JoinPlan
from job.plan.side_plan import SidePlan
from job.plan.table_heap import table_heap
from job.spec.durations import duration_text
from job.spec.sides import OTHER_SIDE, Side

LATE_ROWS = "none: a row of the stream is joined when it is read"
"""Fate of late rows in a join with the newest row of a table."""


def matches_text(plan: JoinPlan) -> str:
    if plan.join_type.anti_side is not None:
        return f"none: a {plan.streams[0]} row with a match is dropped"
    has_row = "has a version that is valid" if plan.is_as_of else "has a row"
    return f"each {plan.streams[0]} row whose key {has_row}, {emitted_when(plan)}"


def emitted_when(plan: JoinPlan) -> str:
    """When a row of the stream has its result."""
    if plan.is_final:
        return waited(plan)
    return "as soon as both rows are read" if plan.stream_waits else "as soon as it is read"


def waited(plan: JoinPlan) -> str:
    """When a row of the stream that waits has waited."""
    waits = plan.side(plan.streams[0]).retention
    by = f" by {duration_text(waits)}" if waits else ""
    return f"once the watermark has passed it{by}"


def emission_lines(plan: JoinPlan, table: Side) -> Iterator[tuple[str, str]]:
    """When a row of the stream has its result."""
    stream = OTHER_SIDE[table]
    if not plan.join_type.outer_sides:
        yield "unmatched rows", "are not emitted"
    else:
        missing = (
            "no version of its key is valid" if plan.is_as_of else "its key has no row in the table"
        )
        if plan.stream_waits and not plan.is_final:
            yield f"unmatched {stream}", f"{waited(plan)}: {missing};"
            yield "", "at once: the condition is not met"
        else:
            when = "then, too" if plan.is_final else "at once"
            yield f"unmatched {stream}", f"{when}: {missing}, or the condition is"
            yield "", "not met"
    change = "is a version of its key" if plan.is_as_of else "changes the row of its key"
    yield "table", f"a record of the {table} side has no result: it {change}"


def loading_lines(plan: JoinPlan, table: Side) -> Iterator[tuple[str, str]]:
    """What the query reads first."""
    side, stream = plan.side(table), OTHER_SIDE[table]
    if plan.is_as_of:
        yield from _version_lines(side)
    else:
        yield (
            side.side,
            f"topic {side.topic}, from its beginning: the row of a key is that of the largest",
        )
        yield "", f"offset that was read. {deletes(side)} deletes it"
    yield (
        "at each start",
        f"the query reads the {table} side up to its present end, and no record of",
    )
    yield "", f"the {stream} side before. Later each batch reads the table to its end"
    yield "", f"before it joins: a {stream} row joins what was in the table before it"
    if plan.real_time is not None:
        yield "", "In real time both topics are read at the same time: a record of the"
        yield "", "table is applied some milliseconds after it was written"
    if plan.stream_waits:
        yield "repetition", "after a failure the results are the same"
        return
    yield "repetition", "after a failure of a batch the results are the same. With engine real_time"
    newer = "version that was read later" if plan.is_as_of else "newer row of the table"
    yield "", f"a row whose result is not written yet may get a {newer}"


def _version_lines(side: SidePlan) -> Iterator[tuple[str, str]]:
    assert side.table is not None, "the side is a table"
    yield side.side, f"topic {side.topic}, from its beginning: a record is a version of its key,"
    yield (
        "",
        f"valid from {side.event_time_text} until that of the next version. Of several with one",
    )
    yield "", f"event time, that of the largest offset. {deletes(side)} deletes"
    yield "", "the key from its event time on; that of a tombstone is the Kafka timestamp"
    if side.table.retention is not None:
        yield "", f"A version is valid for {duration_text(side.table.retention)} at most"
    if side.table.takes_first:
        yield "", "A row before all versions of its key that the table has joins the first one"
    if side.table.is_final:
        yield (
            "late versions",
            "a version that is read when rows of its event time have their results",
        )
        yield "", "is valid from then on, if it is newer than the version that is valid"
        yield "", "then. It is counted as a late row of its side"
        return
    yield "late versions", "a version that is read after rows with a later event time changes no"
    yield "", "result that was emitted: streamjoin_table_stale_answers_total counts it"


def deletes(side: SidePlan) -> str:
    """The records that delete the row of their key."""
    assert side.table is not None, "the side is a table"
    records = ["a record without a value" if side.envelope is None else "the operation delete"]
    if side.filter is not None and side.envelope is None:
        records.append(f"one that fails {side.filter.text}")
    if side.table.delete is not None:
        records.append(f"one with {side.table.delete.text}")
    text = records[0] if len(records) == 1 else f"{', '.join(records[:-1])} or {records[-1]}"
    return text[0].upper() + text[1:]


def retention_text(plan: JoinPlan, table: Side, side: Side) -> str:
    if side == table and plan.is_as_of:
        return "of each key, the version that is valid at the watermark, and all later ones"
    if side == table:
        return "the newest row of each key is kept until a record deletes it"
    if plan.is_final:
        return f"a row waits for its version, and is emitted {emitted_when(plan)}"
    if plan.stream_waits:
        waited = duration_text(plan.side(side).retention or timedelta())
        what = "version that is valid" if plan.is_as_of else "row in the table"
        return f"a row without a {what} waits until the watermark has passed it by {waited}"
    return "not stored: a row is joined when it is read"


def state_text(plan: JoinPlan, table: Side, load: Load | None) -> str:
    kept = f"one row for each key of the {table} side, which no time bounds"
    if plan.is_as_of:
        kept = (
            f"for each key of the {table} side the version that is valid at the watermark, and all "
            "later ones"
        )
    if plan.stream_waits:
        kept = f"{kept}, and the {plan.streams[0]} rows that wait"
    of_rows = table_heap(plan)
    if load is None or load.rows is None or load.state_bytes is None or of_rows is None:
        return f"{kept}; set {table}.table.expected_keys and expected_rate for an estimate"
    return (
        f"{kept}; about {rounded(load.rows)} rows, {size(load.state_bytes)} on disk; a heap of "
        f"{of_rows.heap_gib}g has the whole table"
    )
