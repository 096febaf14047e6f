"""What the job answers when it is asked for more than its status. Values that cross the socket."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from job.protocol.progress import BatchProgress, Failure


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class PlanAnswer(_Answer):
    text: str
    """As `streamjoin plan` prints it."""
    facts: dict[str, Any]
    """As `streamjoin plan --json` prints it."""
    spec: dict[str, Any]
    """The spec at work, its secrets left out."""


class ProgressAnswer(_Answer):
    batches: list[BatchProgress]
    """The last ones, oldest first."""


class FailuresAnswer(_Answer):
    failures: list[Failure]
    """The last ones, oldest first."""


class StateRow(_Answer):
    row: dict[str, Any]
    """The columns that the join holds of it."""
    event_time: datetime | None
    """Null: the join does not keep it in state (a tumbling window whose output does not use it)."""
    topic: str
    partition: int
    offset: int
    matched: bool | None
    """Whether a row of the other side has matched it so far; null where the join need not know."""
    leaves_after: datetime | None
    """It leaves state once the watermark is later than this; null: never."""


class StateAnswer(_Answer):
    side: str
    key: list[str]
    batch_id: int
    """As of the end of this batch."""
    rows: list[StateRow]
    """Oldest event time first."""
    more: bool
    """Whether there are more rows than were asked for."""
    seconds: float
    """What the look-up took."""


class KeyExplanation(_Answer):
    sentences: list[str]
    """The most telling first."""
    left: StateAnswer
    right: StateAnswer


class FieldProblem(_Answer):
    field: str
    message: str


class FrozenChange(_Answer):
    """A setting that the checkpoint has frozen and the spec has otherwise."""

    field: str
    frozen: str
    wanted: str


class ValidationAnswer(_Answer):
    problems: list[FieldProblem]
    """Everything that is wrong with the spec; empty where it can be run."""
    plan: str | None
    """As `streamjoin plan` prints it; null where there are problems."""
    checkpoint_changes: list[FrozenChange] | None
    """What keeps this job's checkpoint from going on with the spec; null where nothing is known."""
