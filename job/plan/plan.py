"""The JoinPlan: all settings of the Spark query, and all facts that `streamjoin plan` shows.

Values only, no Spark. planner.py creates it from a spec; job/dataflow/ builds the query from it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from urllib.parse import urlsplit

from job.formats.schemas import PARTS, OutputSchema, Part, ReaderSchema
from job.plan import real_time, tuning
from job.plan.checks import ResultChecks
from job.plan.jvm_options import driver_options, with_login
from job.plan.position import position_column
from job.plan.real_time import RealTimePlan
from job.plan.side_plan import SidePlan, TablePlan
from job.spec.durations import milliseconds
from job.spec.engine import Engine
from job.spec.expressions import Expression
from job.spec.join_conditions import JoinOperator, JoinType, MatchWindow, Pick
from job.spec.output import Delivery
from job.spec.registry import SchemaRegistrySpec
from job.spec.security import KafkaSecurity
from job.spec.sides import SIDES, Side
from job.spec.source_topics import SourceTopics
from job.spec.start_positions import StartPositions, start_options
from job.spec.value_format import KeyFormat
from job.spec.windows import TumblingWindow
from job.sql.types import SqlType


@dataclass(frozen=True)
class OutputPlan:
    topic: str
    columns: Mapping[str, Expression]
    headers: Mapping[str, Expression]
    """Besides `streamjoin-id`."""
    has_event_time: bool
    """Whether the timestamp of a result is its event time."""
    key: Expression | None
    key_format: KeyFormat
    partition_by: Expression | None
    """Value that chooses the partition. None: the key chooses the partition."""
    filter: Expression | None
    delivery: Delivery
    commit_topic: str
    """Topic of the commit markers. Unused with at-least-once delivery."""
    sink_options: Mapping[str, str]
    schema: OutputSchema | None = None
    """None: the values are JSON."""
    key_schema: OutputSchema | None = None
    """None: the keys are text or JSON, or results have no key."""
    partitions: int = 1
    """Number of partitions of the topic when the query starts, for `partition_by`. 1 before the
    start."""

    @property
    def schemas(self) -> tuple[OutputSchema, ...]:
        """The schemas that a registry contains: of the keys, then of the values."""
        return tuple(each for each in (self.key_schema, self.schema) if each is not None)


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
    null_safe: tuple[bool, ...]
    """Per pair of keys: whether a null matches a null."""
    match_window: MatchWindow | None
    window: TumblingWindow | None
    event_time_in_key: bool
    condition: Expression | None
    output: OutputPlan
    bootstrap_servers: str
    security: KafkaSecurity | None
    """Locations of the secrets; job/kafka/security.py reads them when it configures a client."""
    schema_registry: SchemaRegistrySpec | None
    checkpoint: str
    state_partitions: int
    pick: Pick | None
    """Which match is the result of a left row. None: every match is a result."""
    null_keys_pass: bool
    """Whether rows with a null key enter the join (where they match nothing, unless the pair is
    null-safe)."""
    dead_letter: DeadLetterPlan | None
    """None: bad records are dropped, or the query fails."""
    fails_on_bad_records: bool
    operator: JoinOperator = JoinOperator.SPARK
    chooses_operator: bool = False
    """Whether the spec names the operator. If not, a checkpoint keeps its own."""
    real_time: RealTimePlan | None = None
    """None: the engine is micro_batch."""
    key_types: tuple[SqlType, ...] = ()
    """In which the parts of both keys are compared."""
    checks: ResultChecks = field(default_factory=ResultChecks)

    @property
    def consumer_group(self) -> str:
        """Group to which the job commits the offsets that it has read, for lag tools."""
        return f"streamjoin-{self.name}"

    def side(self, side: Side) -> SidePlan:
        return self.left if side == "left" else self.right

    @property
    def table_side(self) -> Side | None:
        """The side that is a table. None: the join has two streams."""
        return next((side for side in SIDES if self.side(side).table is not None), None)

    @property
    def table(self) -> TablePlan | None:
        return None if self.table_side is None else self.side(self.table_side).table

    @property
    def is_as_of(self) -> bool:
        """Whether a side is a table with versions."""
        return self.table is not None and self.table.is_as_of

    @property
    def is_final(self) -> bool:
        """Whether each row of the stream waits for its version of the table."""
        return self.table is not None and self.table.is_final

    @property
    def stream_waits(self) -> bool:
        """Whether rows of the stream are in state: all of them, or those without a row of the
        table."""
        return self.is_final or (self.table is not None and self.table.wait is not None)

    @property
    def uses_event_times(self) -> bool:
        """Whether a result depends on event times, or waits for a watermark."""
        return self.table_side is None or self.is_as_of or self.stream_waits

    @property
    def streams(self) -> tuple[Side, ...]:
        """The sides that are streams. The watermark follows them."""
        return tuple(side for side in SIDES if self.side(side).table is None)

    @property
    def matched_side(self) -> Side | None:
        """The side of which a row of the other side has at most one match: a table, or the right
        side of a join that picks. None: there is no such side."""
        return "right" if self.pick is not None else self.table_side

    @property
    def identified_sides(self) -> tuple[Side, ...]:
        """The sides whose records are in the id of a result."""
        shown = self.join_type.shown_sides
        return tuple(side for side in shown if side != self.matched_side)

    def marks_matched(self, side: Side) -> bool:
        """Whether Spark stores a `matched` flag with each state row of `side`.

        Spark stores it if the output depends on it (StreamingSymmetricHashJoinExec).
        """
        match self.join_type:
            case JoinType.INNER:
                return False
            case JoinType.FULL_OUTER:
                return True
            case JoinType.RIGHT_OUTER | JoinType.RIGHT_SEMI | JoinType.RIGHT_ANTI:
                return side == "right"
            case _:
                return side == "left"

    @property
    def spark_join_type(self) -> str:
        """The type of Spark's join.

        Spark has no streaming anti join (SPARK-58611): it is an outer join whose matched rows are
        dropped. Spark has no right semi join: it is a left semi join with exchanged inputs. The
        stream of a join with a table is the left input, too.
        """
        kind = {
            JoinType.LEFT_ANTI: "left_outer",
            JoinType.RIGHT_ANTI: "right_outer",
            JoinType.RIGHT_SEMI: "left_semi",
        }.get(self.join_type, self.join_type.value)
        return "left_outer" if self.table_side == "left" and kind == "right_outer" else kind

    @property
    def inputs(self) -> tuple[Side, Side]:
        """The sides as left and right input of Spark's join, which reads them in this order.

        With a table the stream is first: Spark requests the ends of its topic before those of the
        table. So a record of the table that was there before a record of the stream is in the same
        batch or in an earlier one.
        """
        is_exchanged = self.join_type is JoinType.RIGHT_SEMI or self.table_side == "left"
        return ("right", "left") if is_exchanged else SIDES

    def input_of(self, side: Side) -> Side:
        """The name of `side` as an input of Spark's join, and so in its state."""
        return SIDES[self.inputs.index(side)]

    def has_registry(self, part: Part) -> bool:
        """Whether the job reads the schema of the values or keys from the registry."""
        side = self.side(part.side)
        return side.keys_have_registry if part.is_key else side.format.has_registry

    @property
    def readers(self) -> dict[Part, ReaderSchema]:
        """Pinned schemas, of the values and keys that have one."""
        sides = {part: self.side(part.side) for part in PARTS}
        readers = {p: side.key_reader if p.is_key else side.reader for p, side in sides.items()}
        return {part: reader for part, reader in readers.items() if reader is not None}

    @property
    def topics(self) -> Mapping[Side, SourceTopics]:
        """Topics of each side, in the order in which the query reads the sides."""
        return {side: self.side(side).topics for side in self.inputs}

    @property
    def deduplicated(self) -> tuple[Side, ...]:
        """The sides with `deduplicate`, in the order in which the query reads the sides."""
        return tuple(side for side in self.inputs if self.side(side).deduplication is not None)

    def with_sides(self, changed: Callable[[SidePlan], SidePlan]) -> "JoinPlan":
        return replace(self, left=changed(self.left), right=changed(self.right))

    @property
    def input_topics(self) -> frozenset[str]:
        """Names of the topics of both sides."""
        return frozenset(name for side in SIDES for name in self.side(side).topics.names)

    @property
    def has_topic_patterns(self) -> bool:
        return any(self.side(side).topics.pattern is not None for side in SIDES)

    def with_topics(self, topics: Mapping[Side, SourceTopics]) -> "JoinPlan":
        """The plan with the topics that a start has found for its patterns."""

        def with_own(side: SidePlan) -> SidePlan:
            own = topics[side.side]
            return replace(
                side, topics=own, source_options={**side.source_options, **subscription(own)}
            )

        return self.with_sides(with_own)

    def starting_at(self, starts: StartPositions) -> "JoinPlan":
        """The plan with other start positions."""
        return self.with_sides(lambda side: _starting_at(side, starts))

    def reading(self, partitions: Mapping[Side, tuple[int, ...]]) -> "JoinPlan":
        """The plan for topics with these numbers of partitions."""
        return self.with_sides(lambda side: replace(side, partition_counts=partitions[side.side]))

    @cached_property
    def on(self) -> str:
        """The ON clause in Spark SQL, over the columns of the dataflow."""
        return " AND ".join([*self._key_terms(), *self._window_terms(), *self._condition_terms()])

    def _key_terms(self) -> Iterator[str]:
        for left, right, null_safe in zip(
            self.left.key, self.right.key, self.null_safe, strict=True
        ):
            # With `<=>` on event times Spark would not recognize the watermark in the key. An event
            # time is never null, so `=` is equivalent.
            event_times = self.event_time_in_key and left.sql == f"`{self.left.event_time_column}`"
            if null_safe and not event_times:
                yield f"({left.sql}) <=> ({right.sql})"
            else:
                yield f"({left.sql}) = ({right.sql})"
                # In a full outer join of Spark 4.3.0 null = null matches: no side is filtered, and
                # the state lookup compares the bytes of the key. With this term a row with a null
                # key is not stored, and a row of an outer side is emitted as unmatched at once.
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
        """The user's condition, each part wrapped so that Spark cannot interpret it.

        Spark takes any comparison in ON for a bound on event time: with `left.v > 5` it would never
        evict left rows, because the "watermark" of v never passes. And an equality of both sides
        would become a join key. In ON null equals false, so the result is the same. The optimizer
        removes `coalesce` around expressions that are never null, such as `<=>`; it does not remove
        `greatest`.
        """
        for part in self.condition.conjuncts if self.condition else ():
            if not self._can_fail_on_a_pair(part):
                yield f"greatest({part.sql}, false)"
        yield from self._failing_terms()

    def _failing_terms(self) -> Iterator[str]:
        if self.checks.condition is not None:
            # A pair on which it fails passes the join; result_checks.py detects it afterwards.
            tried = guarded(f"try_eval(greatest({self.checks.condition.sql}, false))", "left")
            yield f"coalesce({tried}, true)"

    def _can_fail_on_a_pair(self, part: Expression) -> bool:
        failing = self.checks.condition.conjuncts if self.checks.condition else ()
        return part.sql in {other.sql for other in failing}

    def one_sided_condition(self, side: Side) -> list[str]:
        """The parts of the condition that mention no other side. Of a table there are none: they
        decide whether a row of the stream matches, not which rows the table has."""
        parts = self.condition.conjuncts if self.condition else ()
        return [
            f"coalesce({part.sql}, false)"
            for part in parts
            if part.sides <= {side} and side in self.streams
        ]

    @property
    def pair_condition(self) -> str | None:
        """The part of the condition over both sides, or over a table. None: there is none."""
        parts = self.condition.conjuncts if self.condition else ()
        terms = [
            f"coalesce({part.sql}, false)"
            for part in parts
            if (len(part.sides) == len(SIDES) or part.sides == {self.table_side})
            and not self._can_fail_on_a_pair(part)
        ]
        return " AND ".join([*terms, *self._failing_terms()]) or None

    @cached_property
    def spark_conf(self) -> Mapping[str, str]:
        partitions = {"spark.sql.shuffle.partitions": str(self.state_partitions)}
        files = tuning.CHECKPOINT_CONF.get(urlsplit(self.checkpoint).scheme or "file", {})
        engine = {} if self.real_time is None else real_time.conf(self.output.delivery)
        is_stateless = self.table_side is not None and not self.stream_waits
        table = tuning.TABLE_CONF if is_stateless else {}
        conf = {**tuning.CONF, **tuning.FROZEN_CONF, **files, **engine, **table, **partitions}
        return {**conf, **with_login(conf, self.security)}

    @property
    def engine(self) -> Engine:
        return Engine.MICRO_BATCH if self.real_time is None else Engine.REAL_TIME

    @property
    def driver_options(self) -> str:
        """Options of the driver's JVM."""
        return driver_options(self.engine, self.security)

    @property
    def interval_tasks(self) -> int:
        """Tasks that run at the same time during an interval of real-time mode."""
        return self.left.partitions + self.right.partitions + self.state_partitions


def _starting_at(side: SidePlan, starts: StartPositions) -> SidePlan:
    others = {
        name: value
        for name, value in side.source_options.items()
        if not name.startswith("starting")
    }
    options = {
        **others,
        **start_options(starts.side(side.side), side.topics, side.partition_numbers),
    }
    return replace(side, source_options=options)


def subscription(topics: SourceTopics) -> Mapping[str, str]:
    """Option of Spark's Kafka source that names its topics."""
    return {"subscribe": ",".join(topics.names)}


def window_end_column(side: Side) -> str:
    """The dataflow's column for the end of a row's tumbling window."""
    return f"window_end_{side}"


def guarded(sql: str, side: Side) -> str:
    """`sql` in a branch of CASE, so that Spark evaluates no part of it elsewhere.

    Spark evaluates common subexpressions of two expressions before both, and so outside of their
    try_eval, but not those in a branch of CASE. The guard is true for each row of the join. A guard
    without a nullable column would be optimized away. `side`: a side whose columns `sql` uses.
    """
    return f"CASE WHEN coalesce({position_column(side)}, -1) <> -2 THEN {sql} END"


def _interval(value: timedelta) -> str:
    """A Spark SQL interval, in parentheses because it may be negative."""
    return f"(INTERVAL '{milliseconds(value) / 1000:.3f}' SECOND)"
