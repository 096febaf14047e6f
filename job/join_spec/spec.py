"""What to join. Everything an operator may choose is a field here; job/plan/ derives the rest.

Pure: the text and the environment are handed in, nothing is read from disk, clock or network.
"""

import re
import unicodedata
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
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
from job.join_spec.registry import SchemaRegistrySpec
from job.join_spec.security import KafkaSecurity
from job.join_spec.start_positions import NamedStart
from job.join_spec.text import problems_of
from job.join_spec.variables import filled, variables_hidden

# Spark pins these into a checkpoint, and Kafka and Prometheus put them into names.
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=100)]
Expression = Annotated[str, Field(min_length=1, max_length=10_000)]


# Kafka's brokers keep their own records there (org.apache.kafka.common.internals.Topic).
_INTERNAL_TOPICS = {
    "__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata",
    "__remote_log_metadata",
}  # fmt: skip


def _legal_topic(topic: str) -> str:
    """Kafka's own rule (org.apache.kafka.common.internals.Topic)."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic) or topic in {".", ".."}:
        raise ValueError(
            "is not a Kafka topic name: use 1 to 249 letters, digits, '.', '_' or '-', "
            "and not '.' or '..'"
        )
    if topic in _INTERNAL_TOPICS:
        raise ValueError("is an internal topic of Kafka: name a topic of your own")
    return topic


Topic = Annotated[str, AfterValidator(_legal_topic)]


# More than all brokers of the world send; with more the estimates would overflow.
_RATE_MAX = 1_000_000_000


def _no_boolean(value: Any) -> Any:
    """Python counts True as 1."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _possible_rate(rate: float) -> float:
    if rate > _RATE_MAX:
        raise ValueError(f"must be at most {_RATE_MAX:,} records per second")
    return rate


Rate = Annotated[
    float,
    Field(gt=0, allow_inf_nan=False),
    BeforeValidator(_no_boolean),
    AfterValidator(_possible_rate),
]


def _legible_name(name: str) -> str:
    """Control characters, line breaks and marks that reorder text make a name nobody can type."""
    legible = name.replace(" ", "")
    if not legible or any(unicodedata.category(each)[0] in "CZ" for each in legible):
        raise ValueError("must not be empty or hold control characters or line breaks")
    return name


ColumnName = Annotated[str, Field(max_length=255), AfterValidator(_legible_name)]


class JoinType(StrEnum):
    INNER = "inner"
    LEFT_OUTER = "left_outer"
    RIGHT_OUTER = "right_outer"
    FULL_OUTER = "full_outer"
    LEFT_SEMI = "left_semi"
    LEFT_ANTI = "left_anti"

    @property
    def shows_right(self) -> bool:
        """Whether an output row can hold anything of the right side."""
        return self not in {JoinType.LEFT_SEMI, JoinType.LEFT_ANTI}


class _Frozen(BaseModel):
    # Errors of pydantic would quote what was written, a password among it.
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=True, hide_input_in_errors=True
    )


class KafkaSpec(_Frozen):
    bootstrap_servers: Annotated[str, Field(min_length=1)]
    """`host:port`, several separated by commas."""
    security: KafkaSecurity | None = None
    """TLS and login; left out, neither."""

    @field_validator("bootstrap_servers")
    @classmethod
    def _host_and_port(cls, servers: str) -> str:
        if "@" in servers:
            raise ValueError("holds a name or password: say them under kafka.security")
        for number, server in enumerate(servers.split(","), start=1):
            # The entry is not quoted: it may hold a password.
            found = re.fullmatch(r"\s*[^\s/]+:(\d{1,5})\s*", server, re.ASCII)
            if found is None:
                raise ValueError(f"entry {number} is not host:port, e.g. localhost:9092")
            if not 1 <= int(found[1]) <= 65_535:
                raise ValueError(f"entry {number} has a port that is not between 1 and 65535")
        return servers


class Format(StrEnum):
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"

    @property
    def has_registry(self) -> bool:
        """Whether values are in Confluent's wire format: each names its schema by an id."""
        return self is not Format.JSON


class SideSpec(_Frozen):
    topic: Topic
    format: Format = Format.JSON
    """Of the values; avro and protobuf are in Confluent's wire format, see schema_registry."""
    subject: Annotated[str, Field(min_length=1)] | None = None
    """Where the registry has the schema of avro or protobuf; left out, `<topic>-value`."""
    schema_: Annotated[str | None, Field(alias="schema", min_length=1)] = None
    """Columns of the value as Spark DDL, e.g. `ad_id BIGINT, shown_at TIMESTAMP`. With avro or
    protobuf it may be left out: all fields of the registry's schema."""
    key: Annotated[list[Expression], Field(min_length=1)]
    """What is joined on: columns or expressions, paired with the other side's in order."""
    event_time: Annotated[str, Field(min_length=1)]
    """The TIMESTAMP column that says when it happened."""
    watermark_delay: Delay
    """How much later than the newest event time a row may arrive and still count.

    At least 1 ms: with 0 Spark drops rows equal to the newest event time (apache/spark#56043).
    """
    filter: Expression | None = None
    """Rows that fail it are dropped before the join; they still advance the watermark."""
    max_event_time_ahead: PositiveDuration = timedelta(hours=1)
    """How far an event time may be ahead of Kafka's timestamp of the record; a record with a later
    one cannot be read. It would push the watermark past all that follows."""
    idle_after: PositiveDuration | None = None
    """After this much silence of the side its event time follows the clock, so that the other
    side's unmatched rows come out; left out, they wait."""
    expected_rate: Annotated[
        Rate | None,
        Field(
            description="Records per second of the topic. `streamjoin plan` estimates from it what "
            "the join will need; nothing else depends on it.",
        ),
    ] = None

    @property
    def says_columns(self) -> bool:
        return self.schema_ is not None

    @property
    def subject_asked(self) -> str:
        """By Confluent's TopicNameStrategy, where none is written."""
        return self.subject or f"{self.topic}-value"

    @model_validator(mode="after")
    def _fits_the_format(self) -> Self:
        if self.format is Format.JSON and self.schema_ is None:
            raise ValueError(
                "says no columns: write e.g. `schema: id BIGINT, at TIMESTAMP`; only avro and "
                "protobuf have a registry to ask"
            )
        if self.format is Format.JSON and self.subject is not None:
            raise ValueError("has a subject, which says nothing of json: leave it out")
        return self


class MatchWindow(_Frozen):
    """Rows match when  left - before <= right <= left + after  (event times, both inclusive)."""

    before: Duration | None = None
    after: Duration | None = None

    @model_validator(mode="after")
    def _can_match(self) -> Self:
        if self.before is None and self.after is None:
            raise ValueError("is empty: give before, after or both, e.g. {after: 1 hour}")
        earliest, latest = self.before, self.after
        if earliest is not None and latest is not None and -earliest > latest:
            raise ValueError("before + after is negative: no two rows could ever match")
        return self


class JoinConditions(_Frozen):
    type: JoinType
    match_window: MatchWindow | None = None
    window: PositiveDuration | None = None
    """Instead of match_window: both rows fall into the same tumbling window of this length."""
    null_safe: bool = False
    """Whether a null key matches a null key (`<=>` instead of `=`)."""
    condition: Expression | None = None
    """More of the ON clause, over `left.column` and `right.column`."""
    unbounded_state: bool = False
    """Allows an inner join whose state never ends."""

    @model_validator(mode="after")
    def _one_kind_of_window(self) -> Self:
        if self.match_window is not None and self.window is not None:
            raise ValueError("has match_window and window: keep one of them")
        return self


class Delivery(StrEnum):
    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class OutputSpec(_Frozen):
    topic: Topic
    key: Expression | None = None
    """The output record's key: an output column or an expression; none means no key."""
    columns: Annotated[dict[ColumnName, Expression], Field(min_length=1)] | None = None
    """Name of each output column and its expression; omitted, all columns of both sides."""
    filter: Expression | None = None
    """Rows that fail it are dropped after the join."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    commit_topic: Topic | None = None
    """Where exactly-once delivery notes what is out; omitted, `<name>.commits`. Compacted, one
    partition for each state partition; made at the first start where it is missing."""


class DeadLetterSpec(_Frozen):
    topic: Topic
    """Takes records that cannot be read, and results that are too large, with the reason."""


class JoinTest(_Frozen):
    """A test in the spec: `streamjoin test` runs it without Spark or Kafka."""

    name: Annotated[str, Field(min_length=1)]
    left: list[dict[str, Any]] = []
    """Values of left records in their order, or `{value: …, batch: 2}` with what Kafka adds."""
    right: list[dict[str, Any]] = []
    output: list[dict[str, Any]] = []
    """The rows that must come out, in any order, by the fields named here."""


class JoinSpec(_Frozen):
    name: Name
    kafka: KafkaSpec
    schema_registry: SchemaRegistrySpec | None = None
    """Where the schemas of avro and protobuf are."""
    left: SideSpec
    right: SideSpec
    join: JoinConditions
    output: OutputSpec
    engine: Engine = Engine.MICRO_BATCH
    """Spark's micro-batches, or its real-time mode with results within milliseconds."""
    real_time: RealTimeSpec | None = None
    """Settings of `engine: real_time`."""
    checkpoint: Annotated[str, Field(min_length=1)]
    """A folder on any HDFS-compatible file system; a path without scheme is a local one."""
    start_from: NamedStart = "earliest"
    """First start only: earliest, latest, or an ISO-8601 time with its offset from UTC."""
    dead_letter: DeadLetterSpec | None = None
    on_bad_record: Literal["drop", "fail"] | None = None
    """`drop`: records that cannot be read are counted and dropped; `fail`: the query fails."""
    on_null_key: Literal["pass", "drop", "dead_letter"] = "pass"
    """`pass`: a null key matches nothing and comes out unmatched where the join type says so."""
    on_late_record: Literal["drop", "dead_letter"] = "drop"
    """`drop`: rows behind the watermark are counted and dropped."""
    tests: list[JoinTest] = []

    _check_checkpoint = field_validator("checkpoint")(checkpoint_location)

    @model_validator(mode="after")
    def _bad_records_go_somewhere(self) -> Self:
        if self.dead_letter is None and self.on_bad_record is None:
            raise ValueError(
                "says nothing about records that cannot be read: write `on_bad_record: drop` "
                "to count and drop them, `on_bad_record: fail` to stop at the first, or name a "
                "dead_letter topic"
            )
        if self.dead_letter is not None and self.on_bad_record is not None:
            raise ValueError("has dead_letter and on_bad_record: keep one of them")
        for field in ("on_null_key", "on_late_record"):
            if self.dead_letter is None and getattr(self, field) == "dead_letter":
                raise ValueError(
                    f"has `{field}: dead_letter` and no topic for them: name one, "
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
        formats = [side.format for side in (self.left, self.right) if side.format.has_registry]
        if formats and self.schema_registry is None:
            raise ValueError(
                f"has format {formats[0]} and no registry to ask for its schemas: write e.g. "
                "schema_registry: {url: http://localhost:8081}"
            )
        if self.schema_registry is not None and not formats:
            raise ValueError(
                "has a schema_registry that no side asks: leave it out, or say `format: avro` or "
                "`format: protobuf` of a side"
            )
        return self

    @model_validator(mode="after")
    def _keys_are_paired(self) -> Self:
        if len(self.left.key) != len(self.right.key):
            raise ValueError(
                f"left.key has {len(self.left.key)} entries and right.key {len(self.right.key)}: "
                "they are paired in order, so give both the same number"
            )
        return self

    @model_validator(mode="after")
    def _topics_differ(self) -> Self:
        written = {self.output.topic} | ({self.dead_letter.topic} if self.dead_letter else set())
        for topic in sorted(written & {self.left.topic, self.right.topic}):
            raise ValueError(f"reads and writes topic {topic}: the join would feed on itself")
        if self.dead_letter is not None and self.dead_letter.topic == self.output.topic:
            raise ValueError(
                f"writes results and dead letters into topic {self.output.topic}: name another "
                "one in dead_letter"
            )
        commits = self.output.commit_topic or f"{self.name}.commits"
        if commits in written | {self.left.topic, self.right.topic}:
            raise ValueError(
                f"uses topic {commits} for records and as output.commit_topic, which holds nothing "
                "but markers: name another one"
            )
        return self


def spec_from_yaml(text: str, environment: Mapping[str, str]) -> JoinSpec:
    """The spec in `text`, with `${VAR}` and `${VAR:-default}` filled from `environment`.

    Raises SpecError with every problem found, not just the first.
    """
    document = filled(parsed(text), environment)
    with variables_hidden(text, environment):
        return spec_from_document(document)


def spec_from_document(document: Any) -> JoinSpec:
    """As `spec_from_yaml`, from the parsed YAML."""
    try:
        return JoinSpec.model_validate(document)
    except ValidationError as error:
        raise SpecError(problems_of(error, JoinSpec)) from error


def spec_json_schema() -> dict[str, Any]:
    """JSON Schema of the spec, for editors."""
    return JoinSpec.model_json_schema(by_alias=True)
