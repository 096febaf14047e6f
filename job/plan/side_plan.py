"""The SidePlan: all that the query does with the records of one topic, before the join.

Values only. planner.py creates it from a spec.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from job.formats.schemas import ReaderSchema
from job.plan.checks import SideChecks
from job.spec.csv import CsvSpec
from job.spec.durations import duration_text
from job.spec.expressions import Expression, column_name
from job.spec.sides import Side
from job.spec.source_topics import SourceTopics
from job.spec.table import BeforeFirst, TableVersion
from job.spec.value_format import Envelope, Format, RecordKeyFormat
from job.spec.value_schema import Column, ValueSchema, record_columns


@dataclass(frozen=True)
class Deduplication:
    by: tuple[Expression, ...]
    within: timedelta

    def __str__(self) -> str:
        return f"{', '.join(part.text for part in self.by)} within {duration_text(self.within)}"

    @property
    def frozen(self) -> str:
        return (
            f"{', '.join(part.canonical for part in self.by)} within {duration_text(self.within)}"
        )


@dataclass(frozen=True)
class TablePlan:
    """A side that is a table."""

    version: TableVersion
    delete: Expression | None
    """Records on which it is true delete their key, besides tombstones. It cannot fail."""
    expected_keys: int | None
    """For the estimate of capacity.py. None: not in the spec."""
    before_first: BeforeFirst = BeforeFirst.NONE
    retention: timedelta | None = None
    """How long a version is valid at most. None: until the next version of its key."""
    is_final: bool = False
    """Whether a row of the stream waits for its version."""
    wait: timedelta | None = None
    """How long a row of the stream waits for a row of its key. None: it does not wait."""

    @property
    def is_as_of(self) -> bool:
        """Whether the table has versions, which are valid from their event times on."""
        return self.version is TableVersion.AS_OF

    @property
    def takes_first(self) -> bool:
        """Whether a row before all versions of its key joins the first one."""
        return self.before_first is BeforeFirst.FIRST

    @property
    def frozen(self) -> str:
        parts = [self.version.value]
        if self.takes_first:
            parts.append("before_first first")
        if self.retention is not None:
            parts.append(f"retention {duration_text(self.retention)}")
        if self.is_final:
            parts.append("final")
        if self.wait is not None:
            parts.append(f"wait {duration_text(self.wait)}")
        if self.delete is not None:
            parts.append(f"delete {self.delete.canonical}")
        return ", ".join(parts)


@dataclass(frozen=True)
class ComputedColumn:
    column: Column
    value: Expression
    """Over the columns of the record and the computed columns of lower levels."""
    level: int
    """1: it uses no other computed column."""

    @property
    def name(self) -> str:
        return self.column.name


@dataclass(frozen=True)
class SidePlan:
    side: Side
    topics: SourceTopics
    format: Format
    subject: str
    """Subject of the schema in the registry. Unused for formats without one."""
    reader: ReaderSchema | None
    """Schema from the registry. None: the format has none, or the registry was not read (a job
    always reads it)."""
    schema: ValueSchema
    """Columns of the value."""
    envelope: Envelope | None
    """None: the value is the row."""
    reads_snapshots: bool
    """Whether the rows of Debezium's snapshots are read."""
    drops_tombstones: bool
    """Whether records without a value are dropped, and no bad records."""
    csv: CsvSpec
    """Unused in other formats."""
    key_format: RecordKeyFormat
    key_subject: str
    """As `subject`, for the keys."""
    key_reader: ReaderSchema | None
    """As `reader`, for the keys."""
    record_key: Column
    """Column with the key of the record."""
    key: tuple[Expression, ...]
    null_checked: tuple[int, ...]
    """Indexes of the parts of the key whose nulls are counted, and handled by on_null_key."""
    computed: tuple[ComputedColumn, ...]
    """Computed columns, in the order in which they can be computed."""
    event_time: str
    """Name of the column with the event time. It is a computed column if the spec has an
    expression."""
    event_time_text: str
    """The event time in the spec: the name of a column, or an expression."""
    time_zone: str
    """Time zone of the side's expressions, and of texts without an offset."""
    watermark_delay: timedelta
    min_event_time: datetime
    """A record with an earlier event time is a bad record."""
    max_event_time_ahead: timedelta
    """A record with an event time further ahead of its Kafka timestamp is a bad record."""
    idle_after: timedelta | None
    """Idle timeout after which its event time follows the clock. None: no timeout."""
    expected_rate: float | None
    """Records per second, for the estimate of capacity.py. None: not in the spec."""
    filter: Expression | None
    filter_columns: tuple[tuple[str, ...], ...]
    """Columns of the value in the filter, with the names of their fields."""
    retention: timedelta | None
    """A row is evicted once the watermark is more than this after its event time (with tumbling
    windows: once its window has ended). None: never."""
    kept_columns: tuple[Column, ...]
    """Columns stored in join state, besides the position in Kafka."""
    reads_headers: bool
    """Whether an expression uses `record_headers`; reading them takes time."""
    source_options: Mapping[str, str]
    checks: SideChecks = field(default_factory=SideChecks)
    mirrored: tuple[Expression, ...] = ()
    """Conditions that follow from filters of the other side (mirrored.py)."""
    deduplication: Deduplication | None = None
    """None: every row enters the join."""
    table: TablePlan | None = None
    """None: the side is a stream."""
    partition_counts: tuple[int, ...] = (1,)
    """Partitions of each topic when the query starts. 1 if the plan is only printed."""

    @property
    def topic(self) -> str:
        """The topic, or all topics separated by commas."""
        return str(self.topics)

    @property
    def partitions(self) -> int:
        return sum(self.partition_counts)

    @property
    def partition_numbers(self) -> tuple[int, ...]:
        """Number of each of these partitions (job/spec/source_topics.py)."""
        return tuple(
            self.topics.number(topic, partition)
            for topic, count in zip(self.topics.names, self.partition_counts, strict=False)
            for partition in range(count)
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the value, and computed columns."""
        return (*self.schema.columns, *(each.column for each in self.computed))

    @property
    def record_columns(self) -> tuple[Column, ...]:
        """Columns with metadata of the record."""
        return record_columns(self.record_key.type, has_envelope=self.envelope is not None)

    @property
    def drops_records(self) -> bool:
        """Whether the side drops records that are no bad records."""
        return self.filter is not None or self.drops_tombstones

    @property
    def has_tombstones(self) -> bool:
        """Whether a record without a value deletes its key."""
        return self.table is not None and self.envelope is None

    @property
    def has_typed_keys(self) -> bool:
        """Whether record keys are read as another format than text."""
        return self.key_format is not RecordKeyFormat.STRING

    @property
    def keys_have_registry(self) -> bool:
        """Whether the job reads the schema of a key from the registry."""
        return self.key_format.with_registry is not None

    @property
    def named_columns(self) -> tuple[ComputedColumn, ...]:
        """The computed columns of the spec."""
        is_hidden = self.has_event_time_expression
        return self.computed[:-1] if is_hidden else self.computed

    @property
    def has_event_time_expression(self) -> bool:
        return self.event_time_text != self.event_time

    @property
    def computes_event_time(self) -> bool:
        """Whether the event time is an expression or a computed column."""
        return any(column.name == self.event_time for column in self.computed)

    @property
    def event_time_definition(self) -> str:
        """The event time in one text for all spellings."""
        computed = (each.value for each in self.computed if each.name == self.event_time)
        return next((value.canonical for value in computed), self.event_time)

    @property
    def event_time_column(self) -> str:
        """Name of the event-time column in the dataflow."""
        return column_name(self.side, self.event_time)
