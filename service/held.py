"""What the HTTP API says of the rows that the join holds, and of a spec. Null means unknown."""

from datetime import datetime
from typing import Any, Self

from job.protocol.answers import KeyExplanation, StateAnswer, ValidationAnswer
from job.protocol.reports import PartitionCensus, StateCensus
from service.views import Side, View, counted_rows, unmatched_rows


class PartitionRowsView(View):
    partition: int
    """Of the state, not of the topic."""
    rows: int
    unmatched_rows: int | None
    """Those without a match so far; null where the join need not know."""
    event_time_min: datetime | None

    @classmethod
    def of(cls, part: PartitionCensus) -> Self:
        return cls(
            partition=part.partition,
            rows=part.rows,
            unmatched_rows=part.unmatched,
            event_time_min=part.event_time_min,
        )


class SideRowsView(View):
    rows: int
    unmatched_rows: int | None
    partitions: list[PartitionRowsView]

    @classmethod
    def of(cls, census: StateCensus, side: Side) -> Self:
        parts = census.left if side == "left" else census.right
        return cls(
            rows=counted_rows(census, side) or 0,
            unmatched_rows=unmatched_rows(census, side),
            partitions=[PartitionRowsView.of(part) for part in parts],
        )


class StateView(View):
    batch_id: int
    """As of the end of this batch."""
    counted_at: datetime
    seconds: float
    """What counting took."""
    left: SideRowsView
    right: SideRowsView

    @classmethod
    def of(cls, census: StateCensus) -> Self:
        return cls(
            batch_id=census.batch_id,
            counted_at=census.at,
            seconds=census.seconds,
            left=SideRowsView.of(census, "left"),
            right=SideRowsView.of(census, "right"),
        )


class StateRowView(View):
    row: dict[str, Any]
    """The columns that the join holds of it."""
    event_time: datetime | None
    """Null: the join does not keep it in state."""
    topic: str
    partition: int
    offset: int
    matched: bool | None
    """Whether a row of the other side has matched it so far; null where the join need not know."""
    leaves_after: datetime | None
    """It leaves state once the watermark is later than this; null: never."""


class HeldRowsView(View):
    side: Side
    key: list[str]
    batch_id: int
    """As of the end of this batch."""
    rows: list[StateRowView]
    """Oldest event time first."""
    more: bool
    """Whether there are more rows than were asked for."""
    seconds: float
    """What the look-up took."""

    @classmethod
    def of(cls, answer: StateAnswer) -> Self:
        return cls.model_validate(answer.model_dump())


class ExplainView(View):
    sentences: list[str]
    """The most telling first."""
    left: HeldRowsView
    right: HeldRowsView

    @classmethod
    def of(cls, answer: KeyExplanation) -> Self:
        return cls(
            sentences=answer.sentences,
            left=HeldRowsView.of(answer.left),
            right=HeldRowsView.of(answer.right),
        )


class SpecProblemView(View):
    field: str
    """Dotted path in the YAML."""
    message: str


class CheckpointChangeView(View):
    field: str
    frozen: str
    """What the checkpoint was begun with."""
    wanted: str
    """What the spec says."""


class ValidationView(View):
    problems: list[SpecProblemView]
    """Everything that is wrong with the spec; empty where it can be run."""
    plan: str | None
    """What the join would do, in words; null where there are problems."""
    checkpoint_changes: list[CheckpointChangeView] | None
    """What keeps the job's checkpoint from going on with the spec; null: nothing is known."""

    @classmethod
    def of(cls, answer: ValidationAnswer) -> Self:
        return cls.model_validate(answer.model_dump())
