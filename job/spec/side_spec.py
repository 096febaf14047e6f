"""An input of the join, as the spec describes it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from pydantic import Field

from job.spec.deduplication import DeduplicationSpec
from job.spec.durations import Delay, PositiveDuration
from job.spec.field_types import Expression, Rate, Topic, TopicPattern
from job.spec.frozen import Frozen
from job.spec.registry import default_subject
from job.spec.source_topics import TOPICS_MAX, SourceTopics
from job.spec.value_format import Format


class SideSpec(Frozen):
    """One input of the join."""

    topic: Topic | None = None
    """Topic to read. Set exactly one of `topic`, `topics` and `topic_pattern`."""
    topics: Annotated[list[Topic], Field(min_length=1, max_length=TOPICS_MAX)] | None = None
    """Topics to read as one input: their records have one format and one schema. The checkpoint
    freezes the list and its order. With several topics, each has at most 1024 partitions."""
    topic_pattern: TopicPattern | None = None
    """Regular expression in Python's syntax that must match the whole name of a topic. The side
    reads all topics that match when the query starts, as with `topics`; a restart adds new topics.
    Topics that the join writes and topics whose names begin with `__` are ignored."""
    format: Format = Format.JSON
    """Format of the values. Avro and Protobuf are read in Confluent's wire format and need
    `schema_registry`."""
    subject: Annotated[str, Field(min_length=1)] | None = None
    """Subject of the schema in the registry. Omitted: `<topic>-value`. Required with several
    topics or a `topic_pattern`."""
    schema_: Annotated[str | None, Field(alias="schema", min_length=1)] = None
    """Columns of the value as Spark DDL, e.g. `ad_id BIGINT, shown_at TIMESTAMP`. Required for
    JSON. Omitted for Avro and Protobuf: all fields of the schema in the registry."""
    key: Annotated[list[Expression], Field(min_length=1)]
    """Columns or expressions that must equal those of the other side, paired in order."""
    event_time: Annotated[str, Field(min_length=1)]
    """TIMESTAMP column with the event time."""
    watermark_delay: Delay
    """How far a row may be behind the newest event time of its side before it is late. At least
    1 ms: with 0 Spark drops rows equal to the newest event time (apache/spark#56043)."""
    filter: Expression | None = None
    """Condition on the rows of this side. Rows that fail it are dropped before the join; they still
    advance the watermark."""
    deduplicate: DeduplicationSpec | None = None
    """Duplicates, which the side drops before the join. The checkpoint freezes this setting."""
    max_event_time_ahead: PositiveDuration = timedelta(hours=1)
    """How far an event time may be ahead of the record's Kafka timestamp. A record further ahead is
    a bad record: it would make all following rows late."""
    idle_after: PositiveDuration | None = None
    """Idle timeout. With no new records and no backlog for this long, the side's event time follows
    the clock, so that unmatched rows of the other side are emitted. Omitted: they wait for the next
    record."""
    expected_rate: Rate | None = None
    """Records per second of the topic. `streamjoin plan` uses it to estimate the resources of the
    join. It has no other effect."""

    @property
    def has_columns(self) -> bool:
        return self.schema_ is not None

    @property
    def registry_subject(self) -> str:
        """`subject`, or the one of Confluent's TopicNameStrategy."""
        return self.subject or default_subject(str(self.source_topics))

    @property
    def source_topics(self) -> SourceTopics:
        names = (self.topic,) if self.topic else tuple(self.topics or ())
        return SourceTopics(names, self.topic_pattern)

    def contradictions(self) -> Iterator[str]:
        yield from self._problems_of_topics()
        if self.format is Format.JSON and self.schema_ is None:
            example = "`schema: id BIGINT, at TIMESTAMP`"
            yield f"has no `schema`, which json requires: write e.g. {example}"
        if self.format is Format.JSON and self.subject is not None:
            yield "has a subject, which json does not use: remove it"

    def _problems_of_topics(self) -> Iterator[str]:
        written = [
            name for name in ("topic", "topics", "topic_pattern") if getattr(self, name) is not None
        ]
        if not written:
            yield (
                "has no topic: write `topic: orders`, `topics: [orders, returns]` or "
                "`topic_pattern: orders_.*`"
            )
        if len(written) > 1:
            yield f"has {' and '.join(written)}: keep one of them"
        names = self.source_topics.names
        if len(set(names)) < len(names):
            yield "has the same topic twice in `topics`: remove one of them"
        if self.source_topics.are_several and self.format.has_registry and self.subject is None:
            yield (
                f"has several topics or a topic_pattern and no `subject`, which {self.format} then "
                "requires: name the subject whose schema reads the records of all topics"
            )
