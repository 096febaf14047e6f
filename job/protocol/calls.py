"""The calls of the control socket: one model for each, which has exactly the fields of its call."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from job.spec.sides import Side
from job.spec.start_positions import StartPositions

Verb = Literal["pause", "resume", "stop", "restart", "reset", "change", "undo", "cancel"]


REASON_CHARS_MAX = 300


def _line(text: str | None) -> str | None:
    """`text` in one line that a terminal can show. None: there is no text."""
    if text is None:
        return None
    return "".join(char if char.isprintable() else " " for char in text).strip() or None


class _Call(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Status(_Call):
    call: Literal["status"] = "status"


class _Command(_Call):
    by: str = "unknown"
    """The caller, for the log."""
    reason: Annotated[str | None, Field(max_length=REASON_CHARS_MAX), AfterValidator(_line)] = None
    """Why the caller sends the command. None: not known."""
    not_after: datetime | None = None
    """A command read later than this is not executed: its caller already received an error, for
    example because the job hung. Clock of the machine that job and service share. None: the
    command does not expire."""
    query_id: str | None = None
    """The job refuses the command if it runs another query. None: any query."""


class Pause(_Command):
    call: Literal["pause"] = "pause"


class Resume(_Command):
    call: Literal["resume"] = "resume"


class Stop(_Command):
    call: Literal["stop"] = "stop"
    completes_interval: bool = False
    """Let the current interval of real-time mode end. Otherwise, with exactly-once delivery, the
    next start repeats the interval."""


class Restart(_Command):
    call: Literal["restart"] = "restart"
    reads_spec: bool = False
    """Continue with the spec that the last `ReadSpec` has read. False: with the running spec."""


class Reset(_Command):
    call: Literal["reset"] = "reset"
    starts: StartPositions


class Change(_Command):
    """Follows `ChangePlan` with the same spec."""

    call: Literal["change"] = "change"
    spec: str
    """YAML of the new spec."""
    state_partitions: int | None = None
    """Number of state partitions of the new query. None: as many as the old query has."""


class Undo(_Command):
    call: Literal["undo"] = "undo"


class Cancel(_Command):
    call: Literal["cancel"] = "cancel"


class Plan(_Call):
    call: Literal["plan"] = "plan"


class Progress(_Call):
    call: Literal["progress"] = "progress"


class Failures(_Call):
    call: Literal["failures"] = "failures"


class _KeyLookup(_Call):
    key: list[str]
    """Key parts as text, in the order of the spec."""
    limit: int
    """Maximum number of rows per side."""


class State(_KeyLookup):
    call: Literal["state"] = "state"
    side: Side


class Explain(_KeyLookup):
    call: Literal["explain"] = "explain"
    since: datetime | None = None
    """Time from which the topics are read. None: long enough for the rows of the present state."""


class StateCount(_Call):
    call: Literal["state_count"] = "state_count"


class SpecCall(_Call):
    spec: str
    """YAML of the spec."""
    within_seconds: float = 30.0
    """Time until the caller's deadline."""


class Validate(SpecCall):
    call: Literal["validate"] = "validate"


class ChangePlan(SpecCall):
    call: Literal["change_plan"] = "change_plan"
    state_partitions: int | None = None
    """As in `Change`."""


class ReadSpec(_Call):
    """Reads the spec file again, for the `Restart` that follows."""

    call: Literal["read_spec"] = "read_spec"
    within_seconds: float = 30.0
    """Time until the caller's deadline."""


class CheckUndo(_Call):
    call: Literal["check_undo"] = "check_undo"


Command = Pause | Resume | Stop | Restart | Reset | Change | Undo | Cancel
Read = (
    Plan | Progress | Failures | State | Explain | StateCount | Validate | ChangePlan | CheckUndo
    | ReadSpec
)  # fmt: skip
Request = Annotated[Status | Command | Read, Field(discriminator="call")]
