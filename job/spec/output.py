"""The output of a join: results, delivery, dead letters."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from job.spec.field_types import ColumnName, Expression, HeaderName, Topic
from job.spec.frozen import Frozen
from job.spec.registry import default_subject, key_subject
from job.spec.value_format import Format, KeyFormat


class Delivery(StrEnum):
    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class OutputTimestamp(StrEnum):
    PROCESSING_TIME = "processing_time"
    EVENT_TIME = "event_time"


def _writable(value: Format) -> Format:
    if not value.is_writable:
        raise ValueError("is a format of inputs only: write json, avro or protobuf")
    return value


OutputFormat = Annotated[
    Format,
    AfterValidator(_writable),
    WithJsonSchema({"type": "string", "enum": [each.value for each in Format if each.is_writable]}),
]


class OutputSpec(Frozen):
    """The results and how they are delivered."""

    topic: Topic
    """Topic of the results."""
    format: OutputFormat = Format.JSON
    """Format of the values. Avro and Protobuf are written in Confluent's wire format, with a schema
    that follows from the output columns, and need `schema_registry`."""
    subject: Annotated[str, Field(min_length=1)] | None = None
    """Subject of the schema in the registry. Omitted: `<topic>-value`."""
    register_: Annotated[bool, Field(alias="register")] = True
    """Whether a start of the query registers the schemas of value and key. `false`: the subjects
    must already have them."""
    key: Expression | None = None
    """Key of the output record: an output column or an expression. Omitted: no key."""
    key_format: KeyFormat = KeyFormat.STRING
    """Format of the key. `string`: the text of the key. `avro` and `protobuf`: the subject of the
    schema is `<topic>-key`."""
    partition_by: Expression | None = None
    """Output column or expression whose text chooses the partition instead of the key, with the
    partitioner of Kafka's Java client. Omitted, or null: the key chooses the partition."""
    columns: Annotated[dict[ColumnName, Expression], Field(min_length=1)] | None = None
    """Output columns, each a name and an expression over `left.<column>` and `right.<column>`.
    Omitted: all columns of both sides."""
    headers: dict[HeaderName, Expression] = Field(default={})
    """Further headers of the output record, each a name and an expression as for `columns` or over
    output columns. The value is the text of the result; null gives a header without a value. Every
    result also has the header `streamjoin-id`."""
    timestamp: OutputTimestamp = OutputTimestamp.PROCESSING_TIME
    """Timestamp of the output record. `processing_time`: when it is written. `event_time`: the
    greater event time of the two rows, as in Kafka Streams; requires `delivery: exactly_once`."""
    filter: Expression | None = None
    """Condition on the results. Results that fail it are dropped after the join."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    """Delivery guarantee. `exactly_once` requires consumers with
    `isolation.level=read_committed`."""
    commit_topic: Topic | None = None
    """Topic with the commit markers of exactly-once delivery. Omitted: `<name>.commits`. The first
    start creates it if it is missing: compacted, one partition per state partition."""

    @property
    def registry_subject(self) -> str:
        """`subject`, or the one of Confluent's TopicNameStrategy."""
        return self.subject or default_subject(self.topic)

    @property
    def key_registry_subject(self) -> str:
        return key_subject(self.topic)

    @property
    def formats_with_registry(self) -> list[Format]:
        """Formats of value and key that have a schema."""
        value = self.format if self.format.has_registry else None
        return [each for each in (value, self.key_format.with_registry) if each is not None]

    def contradictions(self) -> Iterator[str]:
        if self.format is Format.JSON and self.subject is not None:
            yield "has a subject, which json does not use: remove it"
        if not self.register_ and not self.formats_with_registry:
            yield "has `register: false`, and neither format nor key_format has a schema: remove it"
        if self.key is None and self.key_format is not KeyFormat.STRING:
            yield f"has key_format {self.key_format} and no key: set `key`, or remove key_format"
        if self.timestamp is OutputTimestamp.EVENT_TIME and self.delivery is not (
            Delivery.EXACTLY_ONCE
        ):
            yield (
                "has `timestamp: event_time` and delivery at_least_once, whose writer, Spark's "
                "Kafka sink, sets none: write `delivery: exactly_once`, or leave timestamp "
                "out and write the event time as a column or header"
            )


class DeadLetterSpec(Frozen):
    """Where bad records are written."""

    topic: Topic
    """Topic for bad records and for results that are too large, with the reason in headers."""
