"""The spec of a join: everything that a user configures. job/plan/ derives the rest.

Pure: no access to disk, clock, network or environment.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from job.errors import SpecError
from job.spec import table_join
from job.spec.checkpoint import checkpoint_location
from job.spec.document import parsed
from job.spec.engine import Engine, RealTimeSpec
from job.spec.field_types import Name
from job.spec.frozen import CONTRADICTION, Contradiction, Frozen
from job.spec.join_conditions import JoinConditions, JoinOperator
from job.spec.output import DeadLetterSpec, OutputSpec
from job.spec.registry import SchemaRegistrySpec
from job.spec.security import KafkaSecurity
from job.spec.side_spec import SideSpec
from job.spec.sides import SIDES
from job.spec.start_positions import NamedStart
from job.spec.table import TableVersion, with_defaults
from job.spec.text import problems_of
from job.spec.value_format import Format
from job.spec.variables import filled, variables_hidden

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


class JoinTest(Frozen):
    """A test of the spec. `streamjoin test` runs it without Kafka and without a Spark session."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the test in the report."""
    left: list[dict[str, Any]] = Field(default=[])
    """Values of left records in order, or whole records such as `{value: …, batch: 2}`."""
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
    """Schema registry. Required if values or keys of a side or of the output are Avro or Protobuf.
    With `json_schema` only `init` reads it."""
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
    from UTC, such as `2026-01-31T12:00:00Z`. Later starts continue from the checkpoint. A table is
    read from its beginning."""
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

    @model_validator(mode="before")
    @classmethod
    def _of_a_table(cls, document: Any) -> Any:
        return with_defaults(document)

    def contradictions(self) -> Iterator[str | Contradiction]:
        yield from self._problems_of_bad_records()
        yield from self._problems_of_the_engine()
        yield from self._problems_of_the_registry()
        yield from self._problems_of_keys()
        yield from self._problems_of_topics()
        yield from self._problems_of_tables()

    def _problems_of_tables(self) -> Iterator[str | Contradiction]:
        sides = dict(zip(SIDES, (self.left, self.right), strict=True))
        tables = [side for side, written in sides.items() if written.table is not None]
        if len(tables) == len(SIDES):
            yield (
                "has a table on both sides: a join needs a stream, whose rows have the results. "
                "Remove left.table or right.table"
            )
        elif tables:
            yield from table_join.problems(self.join, tables[0])
            is_latest = TableVersion.LATEST in {
                written.table.version for written in sides.values() if written.table is not None
            }
            if self.on_late_row == "dead_letter" and is_latest:
                yield (
                    f"has `on_late_row: dead_letter` and `{tables[0]}.table: latest`, with which "
                    "no row is late: remove on_late_row"
                )

    def _problems_of_bad_records(self) -> Iterator[str]:
        if self.dead_letter is None and self.on_bad_record is None:
            yield (
                "needs `dead_letter` or `on_bad_record`, for records that cannot be read: name a "
                "dead_letter topic, or write `on_bad_record: drop` to count and drop them or "
                "`on_bad_record: fail` to fail at the first"
            )
        if self.dead_letter is not None and self.on_bad_record is not None:
            yield "has dead_letter and on_bad_record: remove one of them"
        for field in ("on_null_key", "on_late_row"):
            if self.dead_letter is None and getattr(self, field) == "dead_letter":
                yield (
                    f"has `{field}: dead_letter` and no dead_letter topic: name one, "
                    f"e.g. dead_letter: {{topic: {self.name}.dead}}"
                )

    def _problems_of_the_engine(self) -> Iterator[str | Contradiction]:
        if self.real_time is not None and self.engine is not Engine.REAL_TIME:
            yield (
                f"has real_time settings and engine {self.engine}: write `engine: real_time`, or "
                "leave real_time out"
            )
        if self.engine is Engine.REAL_TIME and self.join.operator is JoinOperator.SPARK:
            message = (
                "does not run in real-time mode: leave join.operator out, or use engine micro_batch"
            )
            yield Contradiction(message, ("join", "operator"), JoinOperator.SPARK)

    def _problems_of_the_registry(self) -> Iterator[str]:
        users = (self.left, self.right, self.output)
        formats = [each for user in users for each in user.formats_with_registry]
        if formats and self.schema_registry is None:
            yield (
                f"has format {formats[0]} and no schema_registry, which it requires: write e.g. "
                "schema_registry: {url: http://localhost:8081}"
            )
        # `init` reads the schema of json_schema there.
        is_read = formats or Format.JSON_SCHEMA in (self.left.format, self.right.format)
        if self.schema_registry is not None and not is_read:
            yield (
                "has a schema_registry that no side and no output uses: remove it, or set "
                "`format: avro` or `format: protobuf` on a side or in output"
            )

    def _problems_of_keys(self) -> Iterator[str]:
        if len(self.left.key) != len(self.right.key):
            yield (
                f"left.key has {len(self.left.key)} entries and right.key {len(self.right.key)}: "
                "entries are paired in order, so both need the same number"
            )

    def _problems_of_topics(self) -> Iterator[Contradiction]:
        read = {
            name: side
            for side, of_side in (("left", self.left), ("right", self.right))
            for name in of_side.source_topics.names
        }
        written = {"output": self.output.topic}
        if self.dead_letter is not None:
            written["dead_letter"] = self.dead_letter.topic
        for field, topic in written.items():
            if topic in read:
                message = f"is also a topic of {read[topic]}: use another topic for one of them"
                yield Contradiction(message, (field, "topic"), topic)
        if self.dead_letter is not None and self.dead_letter.topic == self.output.topic:
            message = "is also output.topic, which contains results: name another topic"
            yield Contradiction(message, ("dead_letter", "topic"), self.output.topic)
        commits = self.output.commit_topic or f"{self.name}.commits"
        if commits in {*written.values(), *read}:
            message = "is also a topic of records, and contains only markers: name another one"
            yield Contradiction(message, ("output", "commit_topic"), commits)


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
    # pydantic checks a model only if its inner models are valid, so the next pass ignores the
    # contradictions that this one found.
    contradictions: list[ErrorDetails] = []
    reported: set[str] = set()
    while True:
        try:
            valid = model.model_validate(document, context=reported)
        except ValidationError as error:
            details = error.errors(include_url=False)
            found = [each for each in details if each["type"] == CONTRADICTION]
            if not found:
                raise SpecError(problems_of([*details, *contradictions], model)) from error
            contradictions += found
            reported |= {each["ctx"]["model"] for each in found}
        else:
            if contradictions:
                raise SpecError(problems_of(contradictions, model))
            return valid
