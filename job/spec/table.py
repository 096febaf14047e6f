"""Settings of a side that is a table: a row of each key, which a newer record replaces."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from job.spec.field_types import Expression
from job.spec.frozen import Frozen
from job.spec.sides import SIDES

KAFKA_TIMESTAMP = "greatest(record_timestamp, timestamp_seconds(315532800))"
"""Event time of a side that names none, in a join with a table. A record without a Kafka timestamp
has one, too, which is not before 1980: min_event_time."""


class TableVersion(StrEnum):
    LATEST = "latest"


class TableSpec(Frozen):
    """A table: the newest row of each key."""

    version: TableVersion
    """Row of the key that a row of the stream joins. `latest`: the newest that was read, in the
    order of the offsets."""
    delete: Expression | None = None
    """Condition on the records that delete their key, e.g. `op = 'd'`. A record without a value (a
    tombstone) and a record on which `filter` is false delete it, too."""
    expected_keys: Annotated[int, Field(gt=0, strict=True)] | None = None
    """Number of keys with a row. `streamjoin plan` uses it to estimate the state. It has no other
    effect."""


def _in_full(written: Any) -> Any:
    return {"version": written} if isinstance(written, str) else written


TableField = Annotated[TableSpec, BeforeValidator(_in_full)]
"""A mapping, or the version alone."""


def with_defaults(document: Any) -> Any:
    """A spec as it is written, with the fields of both sides that a join with a table may leave
    out: nothing depends on event times."""
    if not isinstance(document, dict):
        return document
    sides = {side: document[side] for side in SIDES if isinstance(document.get(side), dict)}
    if all(written.get("table") is None for written in sides.values()):
        return document
    times = {"event_time": KAFKA_TIMESTAMP, "watermark_delay": "1 ms"}
    return {**document, **{side: {**times, **written} for side, written in sides.items()}}
