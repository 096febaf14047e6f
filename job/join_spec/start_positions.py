"""Where reading starts, at a checkpoint's first start: by name, by time or by offset. Pure."""

import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from job.instants import to_epoch_ms
from job.join_spec.durations import instant

# Kafka's offsets are longs.
OFFSET_MAX = 2**63 - 1


def _known_start(start: str) -> str:
    if start not in {"earliest", "latest"} and instant(start) is None:
        raise ValueError("is neither earliest, latest nor a time such as 2026-01-31T12:00:00Z")
    return start


NamedStart = Annotated[str, AfterValidator(_known_start)]
"""`earliest`, `latest`, or an ISO-8601 time with its offset from UTC."""

Offset = Annotated[int, Field(ge=0, le=OFFSET_MAX)]
Partition = Annotated[int, Field(ge=0, lt=2**31)]
SideStartPositions = NamedStart | dict[Partition, Offset]
"""Or the next offset to read of each partition; all partitions of the topic."""


class StartPositions(BaseModel):
    """Kept beside a checkpoint that was begun anew; it takes the place of `start_from`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    left: SideStartPositions
    right: SideStartPositions

    def side(self, side: Literal["left", "right"]) -> SideStartPositions:
        return self.left if side == "left" else self.right


def start_options(start: SideStartPositions, topic: str) -> Mapping[str, str]:
    """As options of Spark's Kafka source."""
    if not isinstance(start, str):
        return {"startingOffsets": json.dumps({topic: {str(p): o for p, o in start.items()}})}
    moment = instant(start)
    if moment is None:
        return {"startingOffsets": start}
    return {
        "startingTimestamp": str(to_epoch_ms(moment)),
        # A partition with nothing newer starts at its end.
        "startingOffsetsByTimestampStrategy": "latest",
    }


def with_all_partitions(
    starts: StartPositions, read: Mapping[Literal["left", "right"], Mapping[int, int]] | None
) -> StartPositions:
    """`starts` with what was `read` for the partitions that it leaves out: Spark wants them all."""
    if read is None:
        return starts
    return StartPositions(
        left=_with_all_partitions(starts.left, read["left"]),
        right=_with_all_partitions(starts.right, read["right"]),
    )


def _with_all_partitions(start: SideStartPositions, read: Mapping[int, int]) -> SideStartPositions:
    return start if isinstance(start, str) else {**read, **start}
