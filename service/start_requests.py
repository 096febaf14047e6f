"""Where a query that is begun anew reads from: as it is asked for, as the job takes it. Pure."""

from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from job.errors import RequestError
from job.join_spec.sides import SIDES, Side
from job.join_spec.start_positions import OFFSET_MAX, NamedStart, StartPositions
from job.protocol.reports import BrokerReport, SideOffsets
from job.protocol.status import JobStatus


def _number(value: Any) -> Any:
    """70.0 is an integer in JSON; "70" and true are none."""
    if isinstance(value, bool | str):
        raise ValueError("is not a number")
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
Name = Annotated[str, Field(description="The query's name: what is begun anew is not undone.")]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ResetRequest(_Body):
    """`start` for both sides, or `left` and `right`: earliest, latest, or an ISO-8601 time."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["start"], "properties": {"left": False, "right": False}},
                {"required": ["left", "right"], "properties": {"start": False}},
            ]
        }
    )

    confirm: Name
    start: Start = Field(default_factory=str)
    left: Start = Field(default_factory=str)
    right: Start = Field(default_factory=str)

    @model_validator(mode="after")
    def _says_each_side_once(self) -> Self:
        if self.model_fields_set not in ({"confirm", "start"}, {"confirm", "left", "right"}):
            raise ValueError("say `start` for both sides, or `left` and `right`, and not both")
        return self

    @property
    def starts(self) -> StartPositions:
        return StartPositions(left=self.left or self.start, right=self.right or self.start)


class OffsetsRequest(_Body):
    """Of one side or both, per partition the next offset to read."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["left"]}, {"required": ["right"]}]}
    )

    confirm: Name
    left: Offsets = Field(default_factory=dict)
    right: Offsets = Field(default_factory=dict)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.model_fields_set == {"confirm"}:
            raise ValueError('say for `left` or `right` from where to read, e.g. {"0": 123}')
        return self

    def side(self, side: Side) -> dict[int, int]:
        offsets = self.left if side == "left" else self.right
        return {int(partition): offset for partition, offset in offsets.items()}


def confirm(name: str, status: JobStatus) -> None:
    """RequestError where the caller may have another query in mind."""
    if name != status.name:
        raise RequestError(f"this query is {status.name}: confirm with exactly its name")


def new_offsets(request: OffsetsRequest, brokers: BrokerReport | None) -> StartPositions:
    """All partitions of both sides; RequestError where one is unknown, or has no such offset."""
    left, right = (
        _side_offsets(side, request.side(side), brokers.side(side) if brokers else None)
        for side in SIDES
    )
    return StartPositions(left=left, right=right)


def _side_offsets(side: Side, wanted: dict[int, int], known: SideOffsets | None) -> dict[int, int]:
    read = (known.read if known else None) or {}
    ends = (known.latest if known else None) or {}
    begins = (known.earliest if known else None) or {}
    for partition, offset in wanted.items():
        if ends and partition not in ends:
            raise RequestError(
                f"{side}.{partition}: the topic has the partitions {_listed(ends)}, and no other"
            )
        first, last = begins.get(partition, 0), ends.get(partition)
        if last is not None and not first <= offset <= last:
            raise RequestError(
                f"{side}.{partition}: offset {offset} is not in the topic, which holds {first} to "
                f"{last}, the next to be written"
            )
    starts = {**read, **wanted}
    if missing := ends.keys() - starts.keys():
        raise RequestError(
            f"{side}: what was read of partition {_listed(missing)} is not known: say where to "
            "begin in each partition, or use POST /v1/query/reset"
        )
    if not starts:
        raise RequestError(
            f"{side}: what was read is not known: say where to begin in each partition, "
            "or use POST /v1/query/reset"
        )
    return starts


def _listed(partitions: "dict[int, int] | set[int]") -> str:
    return ", ".join(map(str, sorted(partitions)))
