"""The JoinPlan: all settings that Spark gets, and all facts that `plan` explains.

Values only, no Spark. planner.py makes one from a spec, job/dataflow/ turns it into a query.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from urllib.parse import urlsplit

from job.formats.schemas import ReaderSchema
from job.join_spec.durations import milliseconds
from job.join_spec.expressions import SIDES, Expression, Side, column_name
from job.join_spec.registry import SchemaRegistrySpec
from job.join_spec.security import KafkaSecurity
from job.join_spec.spec import Delivery, Format, JoinType, MatchWindow
from job.join_spec.start_positions import StartPositions, start_options
from job.join_spec.value_schema import Column, ValueSchema
from job.plan import tuning
from job.plan.checks import ResultChecks, SideChecks
from job.plan.position import position_column

# What Kafka knows of a record beside its value; usable wherever a column of the side is.
RECORD_COLUMNS = (
    Column("record_key", "STRING"),
    Column("record_timestamp", "TIMESTAMP"),
    Column("record_partition", "INT"),
    Column("record_offset", "BIGINT"),
    Column("record_headers", "MAP<STRING, STRING>"),
)
RECORD_COLUMN_NAMES = frozenset(column.name for column in RECORD_COLUMNS)


@dataclass(frozen=True)
class SidePlan:
    side: Side
    topic: str
    format: Format
    subject: str
    """Where the registry has the schema, if the format has one."""
    reader: ReaderSchema | None
    """None: the format is JSON, or no registry was asked (a job always asks)."""
    schema: ValueSchema
    """Columns of the value."""
    key: tuple[Expression, ...]
    event_time: str
    watermark_delay: timedelta
    max_event_time_ahead: timedelta
    """A record with an event time this much ahead of its Kafka timestamp can be read; no more."""
    idle_after: timedelta | None
    """After this much silence its event time follows the clock; None: it waits."""
    expected_rate: float | None
    """Records per second that capacity.py is to estimate for; None: nobody has said."""
    filter: Expression | None
    retention: timedelta | None
    """A row leaves state once the watermark is later than its event time by more than this
    (for tumbling windows: once its window has ended); None: never."""
    kept_columns: tuple[Column, ...]
    """What of a row is held in join state, beside its position in Kafka."""
    reads_headers: bool
    """Whether anything mentions `record_headers`: reading them costs."""
    source_options: Mapping[str, str]
    checks: SideChecks = field(default_factory=SideChecks)
    partitions: int = 1
    """Partitions of the topic when the query starts. 1 in a plan that is only shown."""

    @property
    def event_time_column(self) -> str:
        """Its name in the dataflow."""
        return column_name(self.side, self.event_time)


@dataclass(frozen=True)
class OutputPlan:
    topic: str
    columns: Mapping[str, Expression]
    key: Expression | None
    filter: Expression | None
    delivery: Delivery
    commit_topic: str
    """Used where delivery is exactly once."""
    sink_options: Mapping[str, str]


@dataclass(frozen=True)
class DeadLetterPlan:
    topic: str
    takes_null_keys: bool
    takes_late_rows: bool


@dataclass(frozen=True)
class JoinPlan:
    name: str
    join_type: JoinType
    left: SidePlan
    right: SidePlan
    null_safe: bool
    match_window: MatchWindow | None
    window: timedelta | None
    event_time_in_key: bool
    condition: Expression | None
    output: OutputPlan
    bootstrap_servers: str
    security: KafkaSecurity | None
    """Where its secrets are; job/kafka/security.py reads them when a client is made."""
    schema_registry: SchemaRegistrySpec | None
    checkpoint: str
    state_partitions: int
    null_keys_pass: bool
    """Whether rows with a null key go into the join (matching nothing, unless null_safe)."""
    dead_letter: DeadLetterPlan | None
    """Where bad records go; None: they are dropped, or the query fails."""
    fails_on_bad_records: bool
    checks: ResultChecks = field(default_factory=ResultChecks)

    def side(self, side: Side) -> SidePlan:
        return self.left if side == "left" else self.right

    def marks_matched(self, side: Side) -> bool:
        """Whether Spark keeps with each row of `side` in state whether it has matched.

        It does so where the output depends on it (StreamingSymmetricHashJoinExec).
        """
        match self.join_type:
            case JoinType.INNER:
                return False
            case JoinType.FULL_OUTER:
                return True
            case JoinType.RIGHT_OUTER:
                return side == "right"
            case _:
                return side == "left"

    @property
    def readers(self) -> dict[Side, ReaderSchema]:
        """The schemas that sides were pinned to."""
        found = {side: self.side(side).reader for side in SIDES}
        return {side: reader for side, reader in found.items() if reader is not None}

    def starting_at(self, starts: StartPositions) -> "JoinPlan":
        """The plan with another first start."""
        left, right = (_starting_at(self.side(side), starts) for side in SIDES)
        return replace(self, left=left, right=right)

    def reading(self, partitions: Mapping[Side, int]) -> "JoinPlan":
        """The plan for topics with that many partitions."""
        left, right = (replace(self.side(side), partitions=partitions[side]) for side in SIDES)
        return replace(self, left=left, right=right)

    @cached_property
    def on(self) -> str:
        """The ON clause in Spark SQL, over the columns of the dataflow."""
        return " AND ".join([*self._key_terms(), *self._window_terms(), *self._condition_terms()])

    def _key_terms(self) -> Iterator[str]:
        for left, right in zip(self.left.key, self.right.key, strict=True):
            # `<=>` on event times would hide from Spark that the key carries the watermark;
            # an event time is never null, so `=` says the same.
            event_times = self.event_time_in_key and left.sql == f"`{self.left.event_time_column}`"
            if self.null_safe and not event_times:
                yield f"({left.sql}) <=> ({right.sql})"
            else:
                yield f"({left.sql}) = ({right.sql})"
                # In a full outer join Spark 4.3.0 lets null = null match: no side is filtered,
                # and the state is looked up by the key's bytes. Said in ON, a row with a null key
                # is not stored, and comes out unmatched at once where its side is an outer one.
                yield f"({left.sql}) IS NOT NULL AND ({right.sql}) IS NOT NULL"
        if self.window is not None:
            yield f"{window_end_column('left')} = {window_end_column('right')}"

    def _window_terms(self) -> Iterator[str]:
        left, right = (f"`{self.side(side).event_time_column}`" for side in SIDES)
        if self.match_window is not None and self.match_window.before is not None:
            yield f"{right} >= {left} - {_interval(self.match_window.before)}"
        if self.match_window is not None and self.match_window.after is not None:
            yield f"{right} <= {left} + {_interval(self.match_window.after)}"

    def _condition_terms(self) -> Iterator[str]:
        """The user's condition, part by part, its comparisons hidden from Spark.

        Spark takes any comparison in ON for a bound on event time: with `left.v > 5` it would keep
        left rows until the watermark is past 5,000 ms for ever. And any equality of the two sides
        would become a join key. In ON null is as good as false, so nothing else changes. The
        optimizer drops `coalesce` around what is never null, such as `<=>`; `greatest` it keeps.
        """
        failing = self.checks.condition.conjuncts if self.checks.condition else ()
        for part in self.condition.conjuncts if self.condition else ():
            if part.sql not in {other.sql for other in failing}:
                yield f"greatest({part.sql}, false)"
        if self.checks.condition is not None:
            # A pair on which it fails passes, and is recognised behind the join.
            tried = guarded(f"try_eval(greatest({self.checks.condition.sql}, false))", "left")
            yield f"coalesce({tried}, true)"

    @cached_property
    def spark_conf(self) -> Mapping[str, str]:
        partitions = {"spark.sql.shuffle.partitions": str(self.state_partitions)}
        files = tuning.CHECKPOINT_CONF.get(urlsplit(self.checkpoint).scheme or "file", {})
        return {**tuning.CONF, **tuning.FROZEN_CONF, **files, **partitions, **self._jvm_options()}

    def _jvm_options(self) -> Mapping[str, str]:
        """Kafka's Java client asks for tokens only at URLs that the JVM's command line allows."""
        if self.security is None or self.security.token_endpoint is None:
            return {}
        allowed = (
            f" -Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.security.token_endpoint}"
        )
        names = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
        return {name: tuning.CONF[name] + allowed for name in names}


def _starting_at(side: SidePlan, starts: StartPositions) -> SidePlan:
    others = {
        name: value
        for name, value in side.source_options.items()
        if not name.startswith("starting")
    }
    options = {**others, **start_options(starts.side(side.side), side.topic)}
    return replace(side, source_options=options)


def window_end_column(side: Side) -> str:
    """The dataflow's column for the end of a row's tumbling window."""
    return f"window_end_{side}"


def guarded(sql: str, side: Side) -> str:
    """`sql`, of which nothing is evaluated elsewhere. The guard is true for each row of the join.

    Spark evaluates what two expressions have in common before both of them, and so outside of
    their try_eval; not what stands in a branch of CASE. A guard that mentions no column, or
    nothing that may be null, would be optimized away. `side`: one that the expression mentions.
    """
    return f"CASE WHEN coalesce({position_column(side)}, -1) <> -2 THEN {sql} END"


def _interval(value: timedelta) -> str:
    """A Spark SQL interval; in parentheses, for the sign of a negative one."""
    return f"(INTERVAL '{milliseconds(value) / 1000:.3f}' SECOND)"
