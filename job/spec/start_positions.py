"""Start positions of a new checkpoint: earliest, latest, a time, or offsets. Pure."""

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from job.instants import to_epoch_ms
from job.spec.durations import instant
from job.spec.source_topics import SourceTopics

# Kafka's offsets are longs.
OFFSET_MAX = 2**63 - 1


def _known_start(start: str) -> str:
    if start not in {"earliest", "latest"} and instant(start) is None:
        raise ValueError("must be earliest, latest or a time such as 2026-01-31T12:00:00Z")
    return start


NamedStart = Annotated[str, AfterValidator(_known_start)]
"""`earliest`, `latest`, or an ISO-8601 time with an offset from UTC."""

Offset = Annotated[int, Field(ge=0, le=OFFSET_MAX)]
Partition = Annotated[int, Field(ge=0, lt=2**31)]
SideStartPositions = NamedStart | dict[Partition, Offset]
"""A named start, or the next offset to read of every partition of the side's topic."""


class StartPositions(BaseModel):
    """Start positions of a reset query. They are stored next to its checkpoint and replace
    `start_from`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    left: SideStartPositions
    right: SideStartPositions

    def side(self, side: Literal["left", "right"]) -> SideStartPositions:
        return self.left if side == "left" else self.right


def start_options(
    start: SideStartPositions, topics: SourceTopics, partitions: Collection[int] = ()
) -> Mapping[str, str]:
    """Options of Spark's Kafka source.

    `partitions`: numbers of the partitions. Spark requires the offset of each one, so those without
    an offset, which were added since, start at 0.
    """
    if not isinstance(start, str):
        offsets = {**dict.fromkeys(partitions, 0), **start}
        return {"startingOffsets": json.dumps(topics.by_topic(offsets))}
    time = instant(start)
    if time is None:
        return {"startingOffsets": start}
    return {
        # For Kafka, -1 is the end of a partition.
        "startingTimestamp": str(max(0, to_epoch_ms(time))),
        # A partition without newer records starts at its end.
        "startingOffsetsByTimestampStrategy": "latest",
    }


def with_all_partitions(starts: StartPositions, before: StartPositions | None) -> StartPositions:
    """`starts`, whose offsets are completed with those in `before`: Spark requires an offset per
    partition."""
    if before is None:
        return starts
    return StartPositions(
        left=_with_all_partitions(starts.left, before.left),
        right=_with_all_partitions(starts.right, before.right),
    )


def _with_all_partitions(
    start: SideStartPositions, before: SideStartPositions
) -> SideStartPositions:
    if isinstance(start, str) or isinstance(before, str):
        return start
    return {**before, **start}
