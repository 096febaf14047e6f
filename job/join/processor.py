"""The operator `streamjoin`: both sides as one stream through StreamJoin.java.

    left rows  --\
                  union -- group by key -- StreamJoin -- joined rows
    right rows --/

The processor is in Java, and also runs in real-time mode. The columns that it needs are computed
here, in SQL: see `_input_rows`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from job.jvm_class import jvm_class
from job.plan.deduplication import id_column, id_kept_after
from job.plan.join_operator import HEAP_SHARE, id_slot_length, slot_length
from job.plan.plan import JoinPlan, window_end_column
from job.plan.position import position_column
from job.plan.side_plan import SidePlan
from job.protocol.progress import HeapUse, TableCounts
from job.spark.java_classes import check_classes, java_class
from job.spark.observed_metrics import observed
from job.spec.durations import milliseconds
from job.spec.sides import SIDES, Side

DEAD_LETTER = "dead_letter"
"""Column of an input: the dead letter that is emitted if the row is late. Column of the result: a
dead letter; all columns of both sides are then null."""
IS_DELETED = "is_deleted"
"""Column of a table: whether the row deletes the one of its key."""
IS_DEAD = "is_dead"
"""Column of an input: whether the row is not joined, and its DEAD_LETTER is emitted at once."""

_NO_DEAD_LETTER = "struct<none: boolean>"
_NO_ID = "struct<none: boolean>"
_SLOT = "slot"
_OTHER = 2
"""Side of a row that is not joined."""
_MICROSECONDS = 1000
_FOREVER = 2**63 - 1
"""As in job/join/JoinRules.java."""
_LONGEST = 2**62
"""Microseconds. Longer than between any two event times, and a long if an event time is added."""


class RowCounts:
    """Rows by side, counted while the query runs. One object for each start of a query."""

    def __init__(self, spark: SparkSession, plan: JoinPlan) -> None:
        """Raises SetupError if the processor was built from other sources."""
        check_classes(spark)
        self._inputs = plan.inputs
        self._tallied: dict[str, list[str]] = {}
        self.java = java_class(spark, "RowCounts")(spark.sparkContext._jsc.sc())

    def close(self) -> None:
        """Call it when the query has ended."""
        with suppress(Exception):  # the JVM may be gone
            self.java.close()

    def begin_interval(self) -> None:
        self.java.beginInterval()

    def tasks_are_alive(self) -> bool:
        """Whether tasks run and the executor of each has sent a heartbeat lately."""
        return bool(self.java.tasksAreAlive())

    def counted(
        self, rows: DataFrame, name: str, conditions: Mapping[str, str], *metrics: Column
    ) -> DataFrame:
        """As `observed` (spark/observed_metrics.py). The numbers are also known while an interval
        runs."""
        bits = [
            f"CASE WHEN {condition} THEN {1 << place}L ELSE 0L END"
            for place, condition in enumerate(conditions.values())
        ]
        tally = self.java.tally(name, len(conditions))
        self._tallied[name] = list(conditions)
        tallied = rows.where(Column(tally.counted(F.expr(" | ".join(bits))._jc)))
        return observed(tallied, name, conditions, *metrics)

    def observed_in_interval(self) -> Mapping[str, Mapping[str, int]]:
        """What `counted` has counted in the running interval, as of the last report of the
        executors."""
        lines = [line.split(" ") for line in str(self.java.talliesInInterval()).splitlines()]
        return {
            name: dict(zip(self._tallied[name], map(int, counts), strict=True))
            for name, *counts in lines
        }

    def in_interval(self, side: Side) -> tuple[int, int | None]:
        """Late rows and the newest event time, in milliseconds, of the running interval, as of the
        last report of the executors."""
        index = self._inputs.index(side)
        return int(self.java.lateInInterval(index)), self.java.newestInInterval(index)

    def table(self) -> TableCounts:
        """Sums over all batches."""
        return TableCounts(**dict(zip(TableCounts.model_fields, self.java.table(), strict=True)))

    def late_rows(self, side: Side) -> int:
        return int(self.java.late(self._inputs.index(side)))

    def duplicate_rows(self, side: Side) -> int:
        """Rows that were dropped as duplicates."""
        return int(self.java.duplicates(self._inputs.index(side)))

    def heap(self, side: Side) -> HeapUse:
        """Sums over all batches."""
        counts = self.java.heap(self._inputs.index(side))
        return HeapUse(**dict(zip(HeapUse.model_fields, counts, strict=True)))

    def stored_rows(self, side: Side) -> int:
        """Rows that were added to the state."""
        return int(self.java.stored(self._inputs.index(side)))

    def removed_rows(self, side: Side) -> int:
        """Rows that have left the state."""
        return int(self.java.removed(self._inputs.index(side)))


def release_states(spark: SparkSession) -> None:
    """Free the heap of the driver that has rows in state. The next start reads them from the
    checkpoint."""
    java_class(spark, "KeptStates").release()


def processor_join(
    left: DataFrame,
    right: DataFrame,
    plan: JoinPlan,
    *,
    as_interval: bool,
    counts: RowCounts,
    live_run: int = 0,
    heap_bytes: int = 0,
) -> DataFrame:
    """The columns of both sides; and DEAD_LETTER if both sides have DEAD_LETTER and IS_DEAD.

    `as_interval`: as for StreamJoin (join.py). If false, `pass_late_watermark` is called with each
    batch.

    `live_run`: that of a LiveWatermark; 0: the watermark does not advance within a batch.

    `heap_bytes`: limit of the rows of a state partition on the heap; 0: its part of HEAP_SHARE.

    A late row is counted, and emitted as its dead letter if it has one. The last field of a dead
    letter is then the watermark.
    """
    spark = left.sparkSession
    has_letters = DEAD_LETTER in left.columns
    letter = _type_of(left, DEAD_LETTER) if has_letters else _NO_DEAD_LETTER
    whole = {"left": left, "right": right}
    added = (DEAD_LETTER, IS_DEAD, IS_DELETED, *map(id_column, SIDES))
    sides = {side: rows.drop(*added) for side, rows in whole.items()}
    types = {side: rows.schema for side, rows in sides.items()}
    keys = _keys(sides, plan)
    ids = {side: _type_of(whole[side], id_column(side)) for side in plan.deduplicated}
    rows = [
        _input_rows(whole[side], side, keys[side], types, letter, ids, plan) for side in plan.inputs
    ]
    union = reduce(DataFrame.union, rows)
    names = [_SLOT, *_key_names(keys["left"])]
    helper = java_class(spark, "ProcessorJoin")
    rules = java_class(spark, "JoinRules")(
        union.select(*names)._jdf.schema(),
        union._jdf.schema(),
        plan.spark_join_type,
        *_window(plan),
        *(_kept_ms(plan.side(side), plan) for side in plan.inputs),
        HEAP_SHARE,
        heap_bytes,
        _bound_condition(plan, types, spark),
        "none" if plan.pick is None else plan.pick.value,
        plan.join_type.anti_side is None or plan.checks.condition is not None,
        *(as_interval, live_run, _inputs(plan, spark)),
        counts.java,
        _table_rules(plan, spark),
        *(_id_rules(union, side, plan) for side in plan.inputs),
    )
    joined = DataFrame(helper.join(union._jdf, _strings(spark, names), rules), spark)
    return joined if has_letters else joined.drop(DEAD_LETTER)


def _inputs(plan: JoinPlan, spark: SparkSession) -> Any:
    sources = [plan.side(side).topics for side in plan.inputs]
    topics = [_strings(spark, each.names if each.are_several else ()) for each in sources]
    return java_class(spark, "Inputs")(plan.inputs[0], *topics)


def _table_rules(plan: JoinPlan, spark: SparkSession) -> Any:
    table = plan.table
    if table is None or plan.table_side is None:
        return None
    delay, retention = (
        0 if time is None else milliseconds(time) * _MICROSECONDS
        for time in (plan.side(plan.table_side).watermark_delay, table.retention)
    )
    return java_class(spark, "TableRules")(
        *(table.is_as_of, delay, retention, table.takes_first),
        *(table.is_final, _kept_ms(plan.side(plan.streams[0]), plan)),
    )


def _id_rules(union: DataFrame, side: Side, plan: JoinPlan) -> Any:
    deduplication = plan.side(side).deduplication
    if deduplication is None:
        return None
    within = milliseconds(deduplication.within) * _MICROSECONDS
    return java_class(union.sparkSession, "IdRules")(
        union.select(f"{_id_name(side, plan)}.*")._jdf.schema(),
        *(within, 0 if plan.window is not None else within),
        milliseconds(id_kept_after(plan, deduplication)),
        milliseconds(id_slot_length(plan, deduplication)) * _MICROSECONDS,
    )


def _id_name(side: Side, plan: JoinPlan) -> str:
    return f"{plan.input_of(side)}_id"


def _input_rows(
    rows: DataFrame,
    side: Side,
    keys: Sequence[Column],
    types: dict[str, StructType],
    letter: str,
    ids: Mapping[Side, str],
    plan: JoinPlan,
) -> DataFrame:
    """One side's rows as InputRow.java reads them: the key, then columns that are the same in all
    joins, and last the ids of both sides if one of them drops duplicates. `ids`: their types."""
    side_plan = plan.side(side)
    has_letter = DEAD_LETTER in rows.columns
    is_dead = IS_DEAD if has_letter else "false"
    # The expressions of a row that is not joined may fail.
    matchable = f"CASE WHEN {is_dead} THEN false ELSE {_is_matchable(side_plan, plan)} END"
    if side not in plan.join_type.outer_sides:
        rows = rows.where(f"{is_dead} OR {matchable}")
    if side_plan.table is not None:
        matchable = f"NOT {IS_DELETED}"
    late_at = window_end_column(side) if plan.window is not None else side_plan.event_time_column
    values = [F.col(f"`{name}`").alias(name, metadata={}) for name in types[side].names]
    structs = [
        F.struct(*values) if each == side else F.lit(None).cast(types[each]) for each in plan.inputs
    ]
    names = _key_names(keys)
    joins = ~F.expr(is_dead)
    keyed = rows.select(
        "*", *(F.when(joins, key).alias(name) for key, name in zip(keys, names, strict=True))
    )
    parts = [_normalized(keyed, name) for name in names]
    return keyed.select(
        # Replaced by the slot. Spark sorts a batch by the first column, mostly without the others.
        F.xxhash64(*parts).alias(_SLOT),
        *parts,
        F.when(joins, plan.inputs.index(side)).otherwise(_OTHER).alias("side"),
        # Without metadata, by which Spark would drop late rows without counting them by side.
        F.when(joins, F.col(f"`{late_at}`")).alias("late_at", metadata={}),
        F.col(f"`{side_plan.event_time_column}`").alias("event_time", metadata={}),
        F.expr(_expires_at(side_plan, plan)).alias("expires_at"),
        F.expr(matchable).alias("matchable"),
        F.col(position_column(side)).alias("position"),
        *(struct.alias(name) for struct, name in zip(structs, SIDES, strict=True)),
        F.expr(DEAD_LETTER if has_letter else f"cast(null AS {letter})").alias(DEAD_LETTER),
        *(
            F.expr(
                id_column(side) if each == side and side in ids else f"cast(null AS {kind})"
            ).alias(_id_name(each, plan))
            for each in (plan.inputs if ids else ())
            for kind in (ids.get(each, _NO_ID),)
        ),
    )


def _is_matchable(side: SidePlan, plan: JoinPlan) -> str:
    """Whether a row can match any row of the other side."""
    not_null = [
        f"({part.sql}) IS NOT NULL"
        for part, null_safe in zip(side.key, plan.null_safe, strict=True)
        if not null_safe
    ]
    return " AND ".join([*not_null, *plan.one_sided_condition(side.side)]) or "true"


def _expires_at(side: SidePlan, plan: JoinPlan) -> str:
    """The first watermark, in epoch milliseconds, at which the row expires.

    Watermarks are whole milliseconds, so an event time is rounded up.
    """
    if plan.window is not None:
        return f"unix_millis({window_end_column(side.side)})"
    micros = f"unix_micros(`{side.event_time_column}`)"
    rounded = f"{micros} div {_MICROSECONDS} + if({micros} % {_MICROSECONDS} > 0, 1, 0)"
    kept_ms = _kept_ms(side, plan)
    return f"{rounded} + {kept_ms}" if kept_ms < _FOREVER else f"{_FOREVER}L"


def _kept_ms(side: SidePlan, plan: JoinPlan) -> int:
    """Time from the slot time of a row to its expiry."""
    if plan.window is not None or side.table is not None:
        return 0
    if side.retention is None:
        return _FOREVER if plan.table_side is None else 0
    return milliseconds(side.retention) + (0 if plan.event_time_in_key else 1)


def _keys(sides: dict[str, DataFrame], plan: JoinPlan) -> dict[str, list[Column]]:
    """The parts of each side's key in the type as which Spark compares them."""
    both = _empty(sides["left"].sparkSession, [rows.schema for rows in sides.values()])
    keys: dict[str, list[Column]] = {side: [] for side in SIDES}
    helper = java_class(sides["left"].sparkSession, "ProcessorJoin")
    for parts in zip(plan.left.key, plan.right.key, strict=True):
        equality = both.select(F.expr(" = ".join(f"({part.sql})" for part in parts)))
        kind = helper.comparedType(equality._jdf)
        for side, part in zip(SIDES, parts, strict=True):
            keys[side].append(F.expr(f"cast(({part.sql}) AS {kind})"))
    if plan.window is not None:
        for side in SIDES:
            keys[side].append(F.col(window_end_column(side)))
    return keys


def _key_names(keys: Sequence[Column]) -> list[str]:
    return [f"key_{index}" for index in range(len(keys))]


def _window(plan: JoinPlan) -> tuple[int, int, int, int, int]:
    """In microseconds: the distances of event times that match, those of slot times, and the length
    of a slot. The slot time is the end of the tumbling window, or else the event time."""
    slot_micros = milliseconds(slot_length(plan)) * _MICROSECONDS
    if plan.match_window is None:
        return -_LONGEST, _LONGEST, 0, 0, slot_micros
    before, after = (
        _LONGEST if bound is None else milliseconds(bound) * _MICROSECONDS
        for bound in (plan.match_window.before, plan.match_window.after)
    )
    if plan.inputs != SIDES:
        before, after = after, before
    return -before, after, -before, after, slot_micros


def _bound_condition(plan: JoinPlan, types: dict[str, StructType], spark: SparkSession) -> Any:
    if plan.pair_condition is None:
        return None
    both = _empty(spark, [types[side] for side in plan.inputs])
    selected = both.select(F.expr(plan.pair_condition).alias("matches"))
    return java_class(spark, "ProcessorJoin").bound(selected._jdf)


def _empty(spark: SparkSession, schemas: Sequence[StructType]) -> DataFrame:
    """A DataFrame without rows. Spark's optimizer does not detect that, and keeps expressions."""
    fields = [field for schema in schemas for field in schema.fields]
    return spark.createDataFrame(spark.sparkContext.emptyRDD(), StructType(fields))


def _normalized(rows: DataFrame, name: str) -> Column:
    helper = java_class(rows.sparkSession, "ProcessorJoin")
    return Column(helper.normalized(rows._jdf, name))


def _type_of(rows: DataFrame, name: str) -> str:
    return rows.schema[name].dataType.simpleString()


def _strings(spark: SparkSession, values: Sequence[str]) -> Any:
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(jvm_class(gateway.jvm, "java.lang.String"), len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array
