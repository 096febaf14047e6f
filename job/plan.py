"""The JoinPlan: everything Spark will be told, and everything `plan` explains.

Values only, no Spark. planner.py makes one from a spec, dataflow.py turns it into a query.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from job import tuning
from job.durations import milliseconds
from job.expressions import SIDES, Expression, Side, column_name
from job.spec import Delivery, JoinType, MatchWindow
from job.value_schema import Column, ValueSchema

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
    schema: ValueSchema
    """Columns of the JSON value."""
    key: tuple[Expression, ...]
    event_time: str
    watermark_delay: timedelta
    filter: Expression | None
    retention: timedelta | None
    """A row leaves state once the watermark is later than its event time by more than this
    (for tumbling windows: once its window has ended); None: never."""
    kept_columns: tuple[Column, ...]
    """What of a row is held in join state, beside its position in Kafka."""
    reads_headers: bool
    """Whether anything mentions `record_headers`: reading them costs."""
    source_options: Mapping[str, str]

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
    sink_options: Mapping[str, str]


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
    checkpoint: str
    state_partitions: int
    null_keys_pass: bool
    """Whether rows with a null key go into the join (matching nothing, unless null_safe)."""

    def side(self, side: Side) -> SidePlan:
        return self.left if side == "left" else self.right

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
        would become a join key. In ON null is as good as false, so nothing else changes.
        """
        for part in self.condition.conjuncts if self.condition else ():
            yield f"coalesce({part.sql}, false)"

    @cached_property
    def spark_conf(self) -> Mapping[str, str]:
        partitions = {"spark.sql.shuffle.partitions": str(self.state_partitions)}
        return {**tuning.CONF, **tuning.FROZEN_CONF, **partitions}


def window_end_column(side: Side) -> str:
    """The dataflow's column for the end of a row's tumbling window."""
    return f"window_end_{side}"


def position_column(side: Side) -> str:
    """The dataflow's column for a row's place in Kafka: partition * 2^48 + offset."""
    return f"position_{side}"


def _interval(value: timedelta) -> str:
    """A Spark SQL interval; in parentheses, for the sign of a negative one."""
    return f"(INTERVAL '{milliseconds(value) / 1000:.3f}' SECOND)"
