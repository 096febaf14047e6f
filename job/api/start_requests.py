"""Request bodies of reset and offsets, converted into the start positions of a checkpoint. Pure."""

from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from job.api.view import RequestBody
from job.errors import RequestError
from job.protocol.reports import SideOffsets
from job.protocol.status import JobStatus
from job.spec.sides import SIDES, Side
from job.spec.start_positions import OFFSET_MAX, NamedStart, StartPositions


def _number(value: Any) -> Any:
    """Rejects "70" and true, which pydantic converts. 70.0 is an integer in JSON."""
    if isinstance(value, bool | str):
        raise ValueError("must be a number")
    return value


_PARTITION = "^(0|[1-9][0-9]{0,8})$"
_NAMED_START: dict[str, Any] = {
    "anyOf": [{"enum": ["earliest", "latest"]}, {"type": "string", "format": "date-time"}]
}
_OFFSETS: dict[str, Any] = {
    "type": "object",
    "patternProperties": {_PARTITION: {"type": "integer", "minimum": 0, "maximum": OFFSET_MAX}},
    "additionalProperties": False,
    "minProperties": 1,
    "examples": [{"0": 123}],
}
Start = Annotated[NamedStart, WithJsonSchema(_NAMED_START)]
PartitionName = Annotated[str, Field(pattern=_PARTITION)]
NewOffset = Annotated[int, BeforeValidator(_number), Field(ge=0, le=OFFSET_MAX)]
Offsets = Annotated[dict[PartitionName, NewOffset], Field(min_length=1), WithJsonSchema(_OFFSETS)]


class ResetRequest(RequestBody):
    """`start` for both sides, or `left` and `right`: earliest, latest, or an ISO-8601 time."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["start"], "properties": {"left": False, "right": False}},
                {"required": ["left", "right"], "properties": {"start": False}},
            ]
        }
    )

    confirm: str
    """Name of the query, as a confirmation: a new checkpoint cannot be undone."""
    start: Start = Field(default_factory=str)
    """Start of both sides: earliest, latest, or an ISO-8601 time."""
    left: Start = Field(default_factory=str)
    """Start of the left side; requires `right`."""
    right: Start = Field(default_factory=str)
    """Start of the right side; requires `left`."""

    @model_validator(mode="after")
    def _sets_each_side_once(self) -> Self:
        if self.model_fields_set not in ({"confirm", "start"}, {"confirm", "left", "right"}):
            raise ValueError("set either `start`, or both `left` and `right`")
        return self

    @property
    def starts(self) -> StartPositions:
        return StartPositions(left=self.left or self.start, right=self.right or self.start)


class OffsetsRequest(RequestBody):
    """The next offset to read per partition, of one side or both."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["left"]}, {"required": ["right"]}]}
    )

    confirm: str
    """Name of the query, as a confirmation: a new checkpoint cannot be undone."""
    left: Offsets = Field(default_factory=dict)
    """Next offset to read per partition of the left topic."""
    right: Offsets = Field(default_factory=dict)
    """Next offset to read per partition of the right topic."""

    @model_validator(mode="after")
    def _sets_a_side(self) -> Self:
        if self.model_fields_set == {"confirm"}:
            raise ValueError('set offsets for `left` or `right`, e.g. {"0": 123}')
        return self

    def side(self, side: Side) -> dict[int, int]:
        offsets = self.left if side == "left" else self.right
        return {int(partition): offset for partition, offset in offsets.items()}


def confirm(name: str, status: JobStatus) -> None:
    """RequestError unless `name` is the name of the query: the client may mean another one."""
    if name != status.name:
        raise RequestError(f"confirm: must be the name of this query, {status.name}")


def new_offsets(request: OffsetsRequest, status: JobStatus) -> StartPositions:
    """All partitions of both sides; RequestError if a partition or an offset does not exist."""
    for side in status.topics:
        raise RequestError(
            f"the {side} side can read several topics, and offsets have no topic: reset the "
            "query to earliest, latest or a time (`streamjoin reset --start`, POST /v1/query/reset)"
        )
    brokers = status.brokers
    left, right = (
        _side_offsets(side, request.side(side), brokers.side(side) if brokers else None)
        for side in SIDES
    )
    return StartPositions(left=left, right=right)


def _side_offsets(
    side: Side, requested: dict[int, int], known: SideOffsets | None
) -> dict[int, int]:
    read = (known.read if known else None) or {}
    ends = (known.latest if known else None) or {}
    firsts = (known.earliest if known else None) or {}
    for partition, offset in requested.items():
        if ends and partition not in ends:
            raise RequestError(
                f"{side}.{partition}: unknown partition; the topic has {_listed(ends)}"
            )
        first, last = firsts.get(partition, 0), ends.get(partition)
        if last is not None and not first <= offset <= last:
            raise RequestError(
                f"{side}.{partition}: offset {offset} is out of range; the topic has {first} to "
                f"{last} (the next to be written)"
            )
    starts = {**read, **requested}
    if missing := ends.keys() - starts.keys():
        raise RequestError(
            f"{side}: the read offset of partition {_listed(missing)} is unknown: set an offset "
            "for each partition, or reset the query to earliest, latest or a time"
        )
    if not starts:
        raise RequestError(
            f"{side}: the read offsets are unknown: set an offset for each partition, "
            "or reset the query to earliest, latest or a time"
        )
    return starts


def _listed(partitions: "dict[int, int] | set[int]") -> str:
    return ", ".join(map(str, sorted(partitions)))
