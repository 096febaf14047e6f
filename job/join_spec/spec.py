"""The spec of a join: everything that a user configures. job/plan/ derives the rest.

Pure: no access to disk, clock, network or environment.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from job.errors import SpecError
from job.join_spec.checkpoint import checkpoint_location
from job.join_spec.document import parsed
from job.join_spec.durations import Delay, Duration, PositiveDuration
from job.join_spec.engine import Engine, RealTimeSpec
from job.join_spec.field_types import Expression, Name, NullSafety, Rate, Topic
from job.join_spec.frozen import Frozen
from job.join_spec.output import DeadLetterSpec, OutputSpec
from job.join_spec.registry import SchemaRegistrySpec, default_subject
from job.join_spec.security import KafkaSecurity
from job.join_spec.sides import SIDES, Side
from job.join_spec.source_topics import TOPICS_MAX, SourceTopics
from job.join_spec.start_positions import NamedStart
from job.join_spec.text import problems_of
from job.join_spec.value_format import Format
from job.join_spec.variables import filled, variables_hidden
from job.join_spec.windows import TumblingWindow, WindowField


class JoinType(StrEnum):
    INNER = "inner"
    LEFT_OUTER = "left_outer"
    RIGHT_OUTER = "right_outer"
    FULL_OUTER = "full_outer"
    LEFT_SEMI = "left_semi"
    LEFT_ANTI = "left_anti"
    RIGHT_SEMI = "right_semi"
    RIGHT_ANTI = "right_anti"

    @property
    def shown_sides(self) -> tuple[Side, ...]:
        """Sides whose columns results can contain."""
        only = self.semi_side or self.anti_side
        return SIDES if only is None else (only,)

    @property
    def semi_side(self) -> Side | None:
        """Side whose matched rows are emitted alone, each once. None: no semi join."""
        return {JoinType.LEFT_SEMI: SIDES[0], JoinType.RIGHT_SEMI: SIDES[1]}.get(self)

    @property
    def anti_side(self) -> Side | None:
        """Side of which only unmatched rows are emitted. None: no anti join."""
        return {JoinType.LEFT_ANTI: SIDES[0], JoinType.RIGHT_ANTI: SIDES[1]}.get(self)

    @property
    def outer_sides(self) -> tuple[Side, ...]:
        """Sides whose unmatched rows are emitted."""
        match self:
            case JoinType.LEFT_OUTER | JoinType.LEFT_ANTI:
                return ("left",)
            case JoinType.RIGHT_OUTER | JoinType.RIGHT_ANTI:
                return ("right",)
            case JoinType.FULL_OUTER:
                return SIDES
            case _:
                return ()


Model = TypeVar("Model", bound=BaseModel)


class KafkaSpec(Frozen):
    """The Kafka cluster of all topics."""

    bootstrap_servers: Annotated[str, Field(min_length=1)]
    """Addresses of brokers as `host:port`, separated by commas."""
    security: KafkaSecurity | None = None
    """TLS and login. Omitted: unencrypted, without login."""

    @field_validator("bootstrap_servers")
    @classmethod
    def _host_and_port(cls, servers: str) -> str:
        if "@" in servers:
            raise ValueError("contains a user name or password: put them under kafka.security")
        for number, server in enumerate(servers.split(","), start=1):
            # The message does not quote the entry: it may contain a password.
            address = re.fullmatch(r"\s*[^\s/]+:(\d{1,5})\s*", server, re.ASCII)
            if address is None:
                raise ValueError(f"entry {number} is not host:port, e.g. localhost:9092")
            if not 1 <= int(address[1]) <= 65_535:
                raise ValueError(f"entry {number} has a port that is not between 1 and 65535")
        return servers


class SideSpec(Frozen):
    """One input of the join."""

    topic: Topic | None = None
    """Topic to read. Set exactly one of `topic` and `topics`."""
    topics: Annotated[list[Topic], Field(min_length=1, max_length=TOPICS_MAX)] | None = None
    """Topics to read as one input: their records have one format and one schema. The checkpoint
    freezes the list and its order. With several topics, each has at most 1024 partitions."""
    format: Format = Format.JSON
    """Format of the values. Avro and Protobuf are read in Confluent's wire format and need
    `schema_registry`."""
    subject: Annotated[str, Field(min_length=1)] | None = None
    """Subject of the schema in the registry. Omitted: `<topic>-value`. Required with several
    topics."""
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
        return self.subject or default_subject(self.source_topics.names[0])

    @property
    def source_topics(self) -> SourceTopics:
        return SourceTopics((self.topic,) if self.topic else tuple(self.topics or ()))

    @model_validator(mode="after")
    def _names_its_topics(self) -> Self:
        if self.topic is None and self.topics is None:
            raise ValueError("has no topic: write `topic: orders`, or `topics: [orders, returns]`")
        if self.topic is not None and self.topics is not None:
            raise ValueError("has topic and topics: remove one of them")
        names = self.source_topics.names
        if len(set(names)) < len(names):
            raise ValueError("has the same topic twice in `topics`: remove one of them")
        if self.source_topics.are_several and self.format.has_registry and self.subject is None:
            raise ValueError(
                f"has several topics and no `subject`, which {self.format} requires then: name the "
                "subject whose schema reads the records of all topics"
            )
        return self

    @model_validator(mode="after")
    def _fits_the_format(self) -> Self:
        if self.format is Format.JSON and self.schema_ is None:
            raise ValueError(
                "has no `schema`, which json requires: write e.g. `schema: id BIGINT, at TIMESTAMP`"
            )
        if self.format is Format.JSON and self.subject is not None:
            raise ValueError("has a subject, which json does not use: remove it")
        return self


class MatchWindow(Frozen):
    """Rows match if left - before <= right <= left + after (event times, both inclusive)."""

    before: Duration | None = None
    """How far the right row may be before the left row; may be negative. Omitted: no bound."""
    after: Duration | None = None
    """How far the right row may be after the left row; may be negative. Omitted: no bound."""

    @model_validator(mode="after")
    def _can_match(self) -> Self:
        if self.before is None and self.after is None:
            raise ValueError("is empty: set before, after or both, e.g. {after: 1 hour}")
        earliest, latest = self.before, self.after
        if earliest is not None and latest is not None and -earliest > latest:
            raise ValueError("is empty: before + after is negative, so no rows can match")
        return self


class JoinConditions(Frozen):
    """Type and conditions of the join."""

    type: JoinType
    """Kind of join. It decides which rows are emitted."""
    match_window: MatchWindow | None = None
    """Allowed distance of the event times: left - before <= right <= left + after. Alternatives:
    `window`, or both event times in the keys."""
    window: WindowField | None = None
    """Length of a tumbling window that must contain both rows, or a mapping with `size` and
    `offset`. Replaces `match_window`."""
    null_safe: NullSafety = False
    """Whether a null key matches a null key (`<=>` instead of `=`). A list has one value for each
    pair of keys, e.g. `[true, false]`."""
    condition: Expression | None = None
    """Further part of the ON clause, over `left.<column>` and `right.<column>`. An outer row that
    fails it is emitted as unmatched."""
    unbounded_state: bool = False
    """Allows an inner join without bounds, whose state grows indefinitely."""

    @model_validator(mode="after")
    def _one_kind_of_window(self) -> Self:
        if self.match_window is not None and self.window is not None:
            raise ValueError("has match_window and window: remove one of them")
        return self

    @property
    def tumbling_window(self) -> TumblingWindow | None:
        if isinstance(self.window, timedelta):
            return TumblingWindow(size=self.window)
        return self.window


class JoinTest(Frozen):
    """A test of the spec. `streamjoin test` runs it without Spark and Kafka."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the test in the report."""
    left: list[dict[str, Any]] = Field(default=[])
    """Values of left records in order, or envelopes such as `{value: …, batch: 2}`."""
    right: list[dict[str, Any]] = Field(default=[])
    """Values of right records, as for `left`."""
    output: list[dict[str, Any]] = Field(default=[])
    """Expected results in any order. Only the columns given here are compared."""


class JoinSpec(Frozen):
    """A join of two Kafka topics."""

    name: Name
    """Name of the join. It is part of transactional ids, the consumer group for lag tools and the
    commit topic; results of one name are written by one query at a time."""
    kafka: KafkaSpec
    """Brokers, TLS and login."""
    schema_registry: SchemaRegistrySpec | None = None
    """Schema registry. Required if a side or the output has the format Avro or Protobuf."""
    left: SideSpec
    """Left input."""
    right: SideSpec
    """Right input."""
    join: JoinConditions
    """Type and conditions of the join."""
    output: OutputSpec
    """Results and their delivery."""
    engine: Engine = Engine.MICRO_BATCH
    """Execution mode of Spark: micro-batches, or real-time mode with results within milliseconds.
    The checkpoint freezes it."""
    real_time: RealTimeSpec | None = None
    """Settings of `engine: real_time`."""
    checkpoint: Annotated[str, Field(min_length=1)]
    """Folder of the checkpoint on any HDFS-compatible file system. Without a scheme it is a local
    path."""
    start_from: NamedStart = "earliest"
    """Start position of the first start: `earliest`, `latest`, or an ISO-8601 time with an offset
    from UTC, such as `2026-01-31T12:00:00Z`. Later starts continue from the checkpoint."""
    dead_letter: DeadLetterSpec | None = None
    """Dead-letter topic. Set exactly one of `dead_letter` and `on_bad_record`."""
    on_bad_record: Literal["drop", "fail"] | None = None
    """Handling of bad records without a dead-letter topic. `drop`: they are counted by side and
    reason, and dropped. `fail`: the query fails at the first one."""
    on_null_key: Literal["pass", "drop", "dead_letter"] = "pass"
    """Handling of rows with a null in their key; they are counted in each case. `pass`: a null key
    matches nothing (unless `join.null_safe`), and an outer row is emitted as unmatched. `drop`:
    they are dropped. `dead_letter`: they are written to the dead-letter topic. If `join.null_safe`
    is a list, a null in a null-safe pair is an ordinary value: it is neither counted nor
    handled."""
    on_late_row: Literal["drop", "dead_letter"] = "drop"
    """Handling of rows behind the watermark; they are counted in each case. `drop`: they are
    dropped. `dead_letter`: they are written to the dead-letter topic."""
    tests: list[JoinTest] = Field(default=[])
    """Tests that `streamjoin test` runs."""

    _check_checkpoint = field_validator("checkpoint")(checkpoint_location)

    @model_validator(mode="after")
    def _bad_records_are_handled(self) -> Self:
        if self.dead_letter is None and self.on_bad_record is None:
            raise ValueError(
                "needs `dead_letter` or `on_bad_record`, for records that cannot be read: name a "
                "dead_letter topic, or write `on_bad_record: drop` to count and drop them or "
                "`on_bad_record: fail` to fail at the first"
            )
        if self.dead_letter is not None and self.on_bad_record is not None:
            raise ValueError("has dead_letter and on_bad_record: remove one of them")
        for field in ("on_null_key", "on_late_row"):
            if self.dead_letter is None and getattr(self, field) == "dead_letter":
                raise ValueError(
                    f"has `{field}: dead_letter` and no dead_letter topic: name one, "
                    f"e.g. dead_letter: {{topic: {self.name}.dead}}"
                )
        return self

    @model_validator(mode="after")
    def _real_time_settings_are_used(self) -> Self:
        if self.real_time is not None and self.engine is not Engine.REAL_TIME:
            raise ValueError(
                f"has real_time settings and engine {self.engine}: write `engine: real_time`, or "
                "leave real_time out"
            )
        return self

    @model_validator(mode="after")
    def _registry_where_needed(self) -> Self:
        written = (self.left.format, self.right.format, self.output.value_format)
        formats = [value_format for value_format in written if value_format.has_registry]
        if formats and self.schema_registry is None:
            raise ValueError(
                f"has format {formats[0]} and no schema_registry, which it requires: write e.g. "
                "schema_registry: {url: http://localhost:8081}"
            )
        if self.schema_registry is not None and not formats:
            raise ValueError(
                "has a schema_registry that no side and no output uses: remove it, or set "
                "`format: avro` or `format: protobuf` on a side, or `output.format: avro`"
            )
        return self

    @model_validator(mode="after")
    def _keys_are_paired(self) -> Self:
        if len(self.left.key) != len(self.right.key):
            raise ValueError(
                f"left.key has {len(self.left.key)} entries and right.key {len(self.right.key)}: "
                "entries are paired in order, so both need the same number"
            )
        return self

    @model_validator(mode="after")
    def _topics_differ(self) -> Self:
        written = {self.output.topic} | ({self.dead_letter.topic} if self.dead_letter else set())
        read = {name for side in (self.left, self.right) for name in side.source_topics.names}
        for topic in sorted(written & read):
            raise ValueError(f"reads and writes topic {topic}: use another topic for one of them")
        if self.dead_letter is not None and self.dead_letter.topic == self.output.topic:
            raise ValueError(
                f"writes results and dead letters into topic {self.output.topic}: name another "
                "one in dead_letter"
            )
        commits = self.output.commit_topic or f"{self.name}.commits"
        if commits in written | read:
            raise ValueError(
                f"uses topic {commits} for records and as output.commit_topic, which contains only "
                "markers: name another one"
            )
        return self


def spec_from_yaml(text: str, environment: Mapping[str, str]) -> JoinSpec:
    """The spec in `text`, with `${VAR}` and `${VAR:-default}` replaced from `environment`.

    Raises SpecError with all problems, not only the first.
    """
    document = filled(parsed(text), environment)
    with variables_hidden(text, environment):
        return spec_from_document(document)


def spec_from_document(document: Any) -> JoinSpec:
    """As `spec_from_yaml`, from parsed YAML."""
    return _validated(JoinSpec, document)


def kafka_from_document(document: Any) -> KafkaSpec:
    """The field `kafka` of a spec, from parsed YAML. Raises SpecError with all problems."""
    return _validated(KafkaSpec, document)


def registry_from_document(document: Any) -> SchemaRegistrySpec:
    """The field `schema_registry` of a spec, from parsed YAML. Raises SpecError with all
    problems."""
    return _validated(SchemaRegistrySpec, document)


def _validated(model: type[Model], document: Any) -> Model:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise SpecError(problems_of(error, model)) from error
