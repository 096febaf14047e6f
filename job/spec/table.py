"""Settings of a side that is a table: a row of each key, which a newer record replaces, or versions
of it."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from job.spec.durations import PositiveDuration
from job.spec.field_types import Expression
from job.spec.frozen import Frozen
from job.spec.sides import SIDES

KAFKA_TIMESTAMP = "greatest(record_timestamp, timestamp_seconds(315532800))"
"""Event time of a side that names none, in a join with a table. A record without a Kafka timestamp
has one, too, which is not before 1980: min_event_time."""


class TableVersion(StrEnum):
    LATEST = "latest"
    AS_OF = "as_of"


class BeforeFirst(StrEnum):
    """What a row of the stream joins that is before all versions of its key."""

    NONE = "none"
    FIRST = "first"


class TableSpec(Frozen):
    """A table: the newest row of each key, or its versions."""

    version: TableVersion
    """Row of the key that a row of the stream joins. `latest`: the newest that was read, in the
    order of the offsets. `as_of`: the version that is valid at the event time of the row, that is
    the newest one with an event time that is not later."""
    before_first: BeforeFirst | None = None
    """With `as_of`: what a row joins that is before all versions of its key. `none` (default):
    no version. `first`: the first one."""
    retention: PositiveDuration | None = None
    """With `as_of`: how long a version is valid at most. Omitted: until the next version of its
    key."""
    final: bool = False
    """With `as_of`: whether a row of the stream waits until the watermark has passed it by the
    longer `watermark_delay` of both sides. Its version then does not depend on the order in which
    the topics are read."""
    wait: PositiveDuration | None = None
    """How long a row of the stream waits for a row of its key, or with `as_of` for a version that
    is valid at its event time, if there is none: until the watermark has passed it by this time.
    Omitted: it does not wait. Only with engine micro_batch."""
    delete: Expression | None = None
    """Condition on the records that delete their key, e.g. `op = 'd'`. A record without a value (a
    tombstone) and a record on which `filter` is false delete it, too."""
    expected_keys: Annotated[int, Field(gt=0, strict=True)] | None = None
    """Number of keys with a row. `streamjoin plan` uses it to estimate the state and the heap that
    it needs. It has no other effect."""

    def contradictions(self) -> Iterator[str]:
        for name in ("before_first", "retention", "final"):
            if self.version is TableVersion.LATEST and getattr(self, name):
                yield (
                    f"has version latest and {name}, which only as_of uses: write "
                    f"`version: as_of`, or remove {name}"
                )
        if self.final and self.wait is not None:
            yield (
                "has final and wait, which contradict each other: with final each row waits until "
                "no version of its time is to be expected. Remove one of both"
            )
        if self.final and self.before_first is BeforeFirst.FIRST:
            yield (
                "has final and before_first first, which contradict each other: which version of a "
                "key is the first one depends on how far the table is read. Remove one of both"
            )


def _in_full(written: Any) -> Any:
    return {"version": written} if isinstance(written, str) else written


TableField = Annotated[TableSpec, BeforeValidator(_in_full)]
"""A mapping, or the version alone."""


def with_defaults(document: Any) -> Any:
    """A spec as it is written, with the fields of both sides that a join with the newest row of a
    table may leave out: nothing depends on event times."""
    if not isinstance(document, dict):
        return document
    sides = {side: document[side] for side in SIDES if isinstance(document.get(side), dict)}
    tables = [written["table"] for written in sides.values() if written.get("table") is not None]
    versions = [_in_full(table).get("version") for table in tables if isinstance(table, str | dict)]
    if TableVersion.LATEST not in versions:
        return document
    times = {"event_time": KAFKA_TIMESTAMP, "watermark_delay": "1 ms"}
    return {**document, **{side: {**times, **written} for side, written in sides.items()}}
