"""An input of the join, as the spec describes it."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field

from job.spec.csv import CsvSpec
from job.spec.deduplication import DeduplicationSpec
from job.spec.durations import Delay, EventTime, PositiveDuration
from job.spec.field_types import ColumnName, Expression, Rate, Topic, TopicPattern
from job.spec.frozen import Frozen
from job.spec.registry import default_subject, key_subject
from job.spec.source_topics import TOPICS_MAX, SourceTopics
from job.spec.table import TableField
from job.spec.value_format import Envelope, Format, Operation, RecordKeyFormat
from job.sql.time_zones import UTC


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
    `schema_registry`. `json_schema`: JSON in this wire format; the job does not read its schema.
    CSV: a value is one line, whose fields are the columns of `schema` in order. Text: a value is
    the column `value`, of type STRING."""
    csv: CsvSpec | None = None
    """Settings of `format: csv`. Omitted: the defaults."""
    subject: Annotated[str, Field(min_length=1)] | None = None
    """Subject of the schema in the registry. Omitted: `<topic>-value`. Required with several
    topics or a `topic_pattern`."""
    schema_: Annotated[str | None, Field(alias="schema", min_length=1)] = None
    """Columns of the value as Spark DDL, e.g. `ad_id BIGINT, shown_at TIMESTAMP`. Required for
    JSON and CSV, and with `json_schema`. Omitted for Avro and Protobuf: all fields of the schema in
    the registry."""
    envelope: Envelope | None = None
    """`debezium`: a value is the envelope of a change in JSON or Avro. The row is its `after`, and
    of a delete its `before`; `schema` has the columns of the row. Omitted: the value is the row."""
    operations: Annotated[list[Operation], Field(min_length=1)] | None = None
    """Operations whose rows are read from envelopes; the others are counted as filtered. Omitted:
    `[create, read]`."""
    on_tombstone: Literal["drop", "bad_record"] | None = None
    """Handling of records without a value. `drop`: they are counted as filtered. `bad_record`: they
    are bad records. Omitted: `drop` with an `envelope`, otherwise `bad_record`."""
    columns: dict[ColumnName, Expression] = Field(default={})
    """Computed columns, each a name and an expression over the other columns of the side. All other
    expressions of the spec can use them like columns of the value. A record on which one of them
    fails is a bad record."""
    key_format: RecordKeyFormat = RecordKeyFormat.STRING
    """Format of the record keys, which are the column `record_key`. `string`: its text.
    `json_schema`: JSON in Confluent's wire format. Avro and Protobuf need `schema_registry`."""
    key_subject: Annotated[str | None, Field(min_length=1)] = None
    """Subject of the schema of Avro and Protobuf keys in the registry. Omitted: `<topic>-key`.
    Required with several topics or a `topic_pattern`."""
    key_schema: Annotated[str | None, Field(min_length=1)] = None
    """Type of the column `record_key` in Spark DDL, e.g. `BIGINT`, or `STRUCT<id: BIGINT>` for the
    key `{"id": 7}`. Required for JSON keys. Omitted for Avro and Protobuf: the type of the schema
    in the registry."""
    key: Annotated[list[Expression], Field(min_length=1)]
    """Columns or expressions that must equal those of the other side, paired in order."""
    event_time: Expression
    """Event time: a TIMESTAMP column, or an expression of type TIMESTAMP such as
    `timestamp_seconds(payload.ts)`. In a join with `table: latest` it can be omitted: the Kafka
    timestamp. Of a tombstone it is always the Kafka timestamp."""
    time_zone: str = UTC
    """Time zone of texts without an offset in TIMESTAMP columns, and of all expressions of this
    side: an IANA name such as `Asia/Shanghai`, or an offset such as `+08:00`. Expressions of `join`
    and `output` use UTC. The checkpoint freezes this setting."""
    watermark_delay: Delay
    """How far a row may be behind the newest event time of its side before it is late. At least
    1 ms: with 0 Spark drops rows equal to the newest event time (apache/spark#56043). In a join
    with `table: latest` it can be omitted: no row is late. Of a side with `table: as_of`: how far
    a version may be older than one that deletes its key and was read before."""
    table: TableField | None = None
    """Makes the side a table: `latest`, `as_of`, or a mapping with `version` and other fields. A
    row of the other side, the stream, joins the row that its key has in the table, at once; with
    `as_of` the version that is valid at its event time. A record of the table replaces the row of
    its key, or is a new version of it, and has no result. The query reads the table to its end
    before it reads the stream. The checkpoint freezes this setting."""
    filter: Expression | None = None
    """Condition on the records of this side. The others are counted and dropped before the join; a
    record on which it is false is no bad record. They advance the watermark if their event time is
    valid."""
    deduplicate: DeduplicationSpec | None = None
    """Duplicates, which the side drops before the join. The checkpoint freezes this setting."""
    min_event_time: EventTime = datetime.fromisoformat("1980-01-01T00:00:00Z")
    """Earliest event time, ISO-8601 with an offset. A record with an earlier event time is a bad
    record: epoch seconds that are read as milliseconds are times in January and February 1970."""
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
        return self.schema_ is not None or self.format is Format.TEXT

    @property
    def registry_subject(self) -> str:
        """`subject`, or the one of Confluent's TopicNameStrategy."""
        return self.subject or default_subject(str(self.source_topics))

    @property
    def has_key_type(self) -> bool:
        """Whether the spec has the type of the keys."""
        return self.key_schema is not None or self.key_format is RecordKeyFormat.STRING

    @property
    def key_registry_subject(self) -> str:
        """As `registry_subject`, for the keys."""
        return self.key_subject or key_subject(str(self.source_topics))

    @property
    def formats_with_registry(self) -> list[Format]:
        key_format = self.key_format.with_registry
        of_key = [] if key_format is None else [key_format]
        return [*([self.format] if self.format.has_registry else []), *of_key]

    @property
    def source_topics(self) -> SourceTopics:
        names = (self.topic,) if self.topic else tuple(self.topics or ())
        return SourceTopics(names, self.topic_pattern)

    @property
    def read_operations(self) -> list[Operation]:
        if self.table is not None:
            return list(Operation)
        return self.operations or [Operation.CREATE, Operation.READ]

    @property
    def drops_tombstones(self) -> bool:
        """With an envelope, a delete has its own record before the tombstone."""
        return (self.on_tombstone or ("drop" if self.envelope else "bad_record")) == "drop"

    def contradictions(self) -> Iterator[str]:
        yield from self._problems_of_topics()
        yield from self._problems_of_formats()
        yield from self._problems_of_keys()
        yield from self._problems_of_envelopes()
        yield from self._problems_of_tables()

    def _problems_of_tables(self) -> Iterator[str]:
        if self.table is None:
            return
        others = {
            "deduplicate": "a newer record of a key replaces its row",
            "idle_after": "a table that is read to its end delays no result",
            "on_tombstone": "a record without a value deletes its key",
            "operations": "a table applies all operations",
        }
        for name, reason in others.items():
            if getattr(self, name) is not None:
                yield f"is a table and has {name}, which a table does not use: {reason}; remove it"

    def _problems_of_envelopes(self) -> Iterator[str]:
        if self.envelope is not None and not self.format.has_envelopes:
            yield (
                f"has envelope {self.envelope} and format {self.format}: envelopes are read in "
                "JSON and Avro; let the connector write one of them, or use its transformation "
                "ExtractNewRecordState and leave envelope out"
            )
        if self.envelope is None and self.operations is not None:
            yield "has operations and no envelope: write `envelope: debezium`, or remove operations"

    def _problems_of_formats(self) -> Iterator[str]:
        if self.format.needs_columns and self.schema_ is None:
            example = "`schema: id BIGINT, at TIMESTAMP`"
            yield f"has no `schema`, which {self.format} requires: write e.g. {example}"
        if not self.format.has_registry and self.subject is not None:
            yield f"has a subject, which {self.format} does not use: remove it"
        if self.csv is not None and self.format is not Format.CSV:
            yield f"has `csv` and format {self.format}: write `format: csv`, or remove `csv`"

    def _problems_of_keys(self) -> Iterator[str]:
        has_registry = self.key_format.with_registry is not None
        if self.key_format is RecordKeyFormat.STRING and self.key_schema is not None:
            yield (
                "has a key_schema, which key_format string does not use: write `key_format: json`, "
                "or remove key_schema"
            )
        if not (self.has_key_type or has_registry):
            yield (
                f"has no `key_schema`, which key_format {self.key_format} requires: write e.g. "
                "`key_schema: BIGINT`"
            )
        if not has_registry and self.key_subject is not None:
            yield (
                f"has a key_subject, which key_format {self.key_format} does not use: write "
                "`key_format: avro` or `key_format: protobuf`, or remove key_subject"
            )
        if self.source_topics.are_several and has_registry and self.key_subject is None:
            yield (
                "has several topics or a topic_pattern and no `key_subject`, which key_format "
                f"{self.key_format} then requires: name the subject whose schema reads the keys of "
                "all topics"
            )

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
