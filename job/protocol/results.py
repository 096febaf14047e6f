"""Results of the calls that return more than the status. They cross the control socket.

The HTTP API returns some of them unchanged; there null means unknown, never zero.
"""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from job.protocol.progress import BatchProgress
from job.protocol.status import Failure
from job.spec.sides import Side


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class PlanResult(_Result):
    text: str
    """Output of `streamjoin plan`."""
    facts: dict[str, Any]
    """Output of `streamjoin plan --json`."""
    spec: dict[str, Any]
    """The spec of the running job, without its secrets."""


class ProgressResult(_Result):
    batches: list[BatchProgress]
    """The last batches, oldest first."""


class FailuresResult(_Result):
    failures: list[Failure]
    """The last failures, oldest first."""


class StateRow(_Result):
    row: dict[str, Any]
    """The columns of the row that the join stores."""
    event_time: datetime | None
    """Null: the join does not keep it in state (a tumbling window whose output does not use it)."""
    topic: str
    """Topic of its record."""
    partition: int | None
    """Partition of its record. Null: the join does not keep it (right side of `left_semi`, left
    side of `right_semi`)."""
    offset: int | None
    """Offset of its record. Null: as for `partition`."""
    matched: bool | None
    """Whether a row of the other side has matched it so far. Null: the join does not store it."""
    leaves_after: datetime | None
    """The row leaves state once the watermark is later than this. Null: never."""


class KeyRows(_Result):
    """State rows of one key on one side."""

    side: Side
    """Side of the rows."""
    key: list[str]
    """Parts of the key, as in the request."""
    batch_id: int
    """The state is the one at the end of this batch."""
    rows: list[StateRow]
    """Oldest event time first, at most as many as the limit of the request."""
    more: bool
    """Whether the state holds more rows of the key than the limit."""
    duration_seconds: float
    """Duration of the lookup."""


class KeyExplanation(_Result):
    """What happened to the records of a key, with its state rows on both sides."""

    sentences: list[str]
    """Whether the query runs, one sentence for each record, and how far the topics were read."""
    left: KeyRows
    """Rows on the left side."""
    right: KeyRows
    """Rows on the right side."""


class ChangePlanResult(_Result):
    """The plan of a change of the join, at the moment of the call."""

    text: str
    """Output of `streamjoin change --plan`."""
    facts: dict[str, Any]
    """Output of `streamjoin change --plan --json`."""


class UndoResult(_Result):
    """The last change of the join can be undone at the moment of the call."""

    checkpoint: str | None
    """Checkpoint of the query that continues after an undo. Null: not checked, because the job has
    no JVM."""


class SpecFileResult(_Result):
    """The spec file compared with the running spec."""

    message: str
    """Which spec a restart continues with."""


class FieldProblem(_Result):
    field: str
    """Dotted path in the YAML."""
    message: str
    """What is wrong, and the fix."""


class FrozenChange(_Result):
    """A setting that is frozen in the checkpoint and differs in the spec."""

    field: str
    """Name of the setting."""
    frozen: str
    """Value in the checkpoint."""
    wanted: str
    """Value in the spec."""


class ValidationResult(_Result):
    problems: list[FieldProblem]
    """All problems of the spec. Empty: the spec is valid."""
    plan: str | None
    """Output of `streamjoin plan`. Null: the spec has problems."""
    checkpoint_changes: list[FrozenChange] | None
    """Changes that the job's checkpoint does not accept. Null: the checkpoint is unknown."""
