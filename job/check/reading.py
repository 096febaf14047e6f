"""Reads records of Kafka by the SQL of the job, without a Spark session."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from job.dead_letters.headers import NULL_KEY
from job.errors import StreamjoinError
from job.formats.registry import RegistryAccess
from job.plan.plan import JoinPlan
from job.semantics.input_records import InputRecord
from job.semantics.rows import Key
from job.semantics.simulated_side import BadRecord, DecodedRow, OtherRecord, SideReader
from job.semantics.topic_records import TopicRecords
from job.spec.sides import Side
from job.sql.rows import EvaluationError, SqlRows


@dataclass(frozen=True)
class ReadRecord:
    record: InputRecord
    reason: str | None
    """Why the record is bad, or becomes a dead letter. None: it is readable."""
    message: str
    """The error of a record with a reason, as in a dead letter."""
    passes: bool = False
    """Whether the record is readable and passes the filter of its side."""
    event_time_us: int | None = None
    """None: the record has a problem."""
    key: Key | None = None
    """Equal texts are equal keys of the join. None: the record does not enter the join, or a part
    of its key is null."""
    key_text: str | None = None
    nulls: frozenset[str] = frozenset()
    """Columns of a readable value that are null."""


def read_records(
    plan: JoinPlan,
    side: Side,
    rows: SqlRows,
    registry: RegistryAccess | None,
    records: Sequence[InputRecord],
) -> list[ReadRecord]:
    """`registry`: required if values or keys have their schemas in a registry.

    Raises RegistryError, SecurityError, or StreamjoinError if an expression fails on a record as it
    would fail the query.
    """
    reader = SideReader(plan, side, rows, explains=True, topics=TopicRecords(plan, registry))
    try:
        with closing(reader):
            read = list(reader.read(records))
    except EvaluationError as error:
        topic = plan.side(side).topic
        raise StreamjoinError(f"the query would fail on a record of {topic}: {error}") from error
    return [_read(*each) for each in zip(records, read, strict=True)]


def _read(record: InputRecord, read: DecodedRow | BadRecord | OtherRecord) -> ReadRecord:
    match read:
        case BadRecord():
            return ReadRecord(record, read.reason, read.message)
        case OtherRecord():
            return ReadRecord(record, None, "", nulls=read.nulls)
        case DecodedRow():
            reason = NULL_KEY if read.message else None
            passes = read.passes_filter and reason is None
            return ReadRecord(
                record,
                reason,
                read.message,
                passes,
                read.event_time_us,
                read.key if passes and not read.has_unequal_null else None,
                read.key_text,
                read.nulls,
            )


def with_topics_of(plan: JoinPlan, topics: Mapping[Side, Sequence[str]]) -> JoinPlan:
    """The plan that reads `topics` on the sides with a pattern."""
    named = {
        side: replace(source, names=()).with_added(topics[side])
        for side, source in plan.topics.items()
        if source.pattern is not None
    }
    return plan.with_topics({**plan.topics, **named})
