"""Parts of a spec that are accepted and that hardly mean what they say."""

from collections.abc import Iterator

from job.plan.plan import JoinPlan
from job.plan.side_plan import SidePlan
from job.spec.expressions import Expression
from job.spec.sides import SIDES

_CASTS_NUMBER = (
    "casts a number to TIMESTAMP, which reads it as seconds: write timestamp_seconds(…), or "
    "timestamp_millis(…) for milliseconds"
)
_REPEATS_ROWS = (
    "has read, the rows of a snapshot: a new snapshot of the connector repeats the rows of the "
    "table, and the join takes them for new ones; leave read out if the topic has a create for "
    "each row"
)


_NO_TOMBSTONES = (
    "is a value of the record, which a tombstone does not have: a tombstone deletes nothing, and "
    "is counted as a null key. And a record with another value of it leaves the row of the old one "
    "in the table. Use the record key, e.g. record_key or key_format: json, if it has the key; or "
    "write table: {version: …, delete: <condition on the records that delete their key>}"
)


def warnings(plan: JoinPlan) -> Iterator[str]:
    """A sentence about each of them, which begins with its field."""
    for field, part in expressions(plan):
        if part is not None and part.casts_number_to_time:
            yield f"{field} {_CASTS_NUMBER}"
    for side in map(plan.side, SIDES):
        if side.reads_snapshots:
            yield f"{side.side}.operations {_REPEATS_ROWS}"
        if (part := _without_tombstones(side)) is not None:
            yield f"{side.side}.key {part.text} {_NO_TOMBSTONES}"


def _without_tombstones(side: SidePlan) -> Expression | None:
    """A part of the key of a table that a record without a value does not have."""
    if not side.has_tombstones or side.table is None or side.table.delete is not None:
        return None
    computed = {column.name: column.value for column in side.computed}
    of_record = {column.name for column in side.record_columns}

    def is_of_record(part: Expression) -> bool:
        names = (name for _, name in part.columns)
        return all(n in of_record or (n in computed and is_of_record(computed[n])) for n in names)

    return next((part for part in side.key if not is_of_record(part)), None)


def expressions(plan: JoinPlan) -> Iterator[tuple[str, Expression | None]]:
    """Each expression of the spec with its field. None: the spec does not have the field."""
    for side in map(plan.side, SIDES):
        for column in side.named_columns:
            yield f"{side.side}.columns.{column.name}", column.value
        for index, part in enumerate(side.key):
            yield f"{side.side}.key[{index}]", part
        if side.has_event_time_expression:
            yield f"{side.side}.event_time", side.computed[-1].value
        yield f"{side.side}.filter", side.filter
        for index, part in enumerate(side.deduplication.by if side.deduplication else ()):
            yield f"{side.side}.deduplicate.by[{index}]", part
    yield "join.condition", plan.condition
    output = plan.output
    for kind, parts in (("columns", output.columns), ("headers", output.headers)):
        for name, part in parts.items():
            yield f"output.{kind}.{name}", part
    yield "output.filter", output.filter
    yield "output.key", output.key
    yield "output.partition_by", output.partition_by
