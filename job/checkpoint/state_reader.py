"""Looks up and counts the rows that the join has in state, as of the end of a batch."""

import json
import operator
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, Row, StructField

from job.checkpoint.join_state import (
    EVENT_TIME,
    LEAVES_AFTER,
    MATCHED,
    POSITION,
    STATE_PARTITION,
    join_state,
    stored_ids,
)
from job.errors import CancelledError, RequestError
from job.instants import from_epoch_ms
from job.plan.plan import JoinPlan
from job.plan.position import partition_and_offset
from job.plan.side_plan import SidePlan
from job.protocol.reports import PartitionCount, SideCount, StateCount
from job.protocol.results import KeyRows, StateRow
from job.spark.in_time_zone import register_in_time_zone
from job.spec.sides import SIDES, Side

NULL = "null"
"""A null in a requested key, as the sentences of `explain` show it."""
# Time until the thread of a lookup ends, and between two cancellations.
_END_SECONDS, _REPEAT_SECONDS = 0.5, 0.05


@dataclass(frozen=True)
class StateReader:
    """Reads the checkpoint of the query of `plan`. `location`: Spark's checkpointLocation."""

    spark: SparkSession
    plan: JoinPlan
    location: str

    def rows(
        self, side: Side, key: Sequence[str], batch_id: int, *, limit: int, cancel: threading.Event
    ) -> KeyRows:
        """The rows with a key, given as the text of its parts, oldest event time first.

        Raises RequestError if `key` is not a key of the side, CancelledError once `cancel` is set.
        """
        started = time.monotonic()
        side_plan = self.plan.side(side)
        state = self._state(side, batch_id)
        columns = [_shown(field) for field in state.schema if not field.name.startswith("__")]
        stored = state.where(self._is_key(state, side_plan, key)).select(
            F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("row"),
            *(EVENT_TIME, POSITION, MATCHED, LEAVES_AFTER),
        )
        with self._cancellable(cancel):
            rows = stored.sort(EVENT_TIME, LEAVES_AFTER, POSITION).limit(limit + 1).collect()
        return KeyRows(
            side=side,
            key=list(key),
            batch_id=batch_id,
            rows=[_state_row(row, side_plan) for row in rows[:limit]],
            more=len(rows) > limit,
            duration_seconds=time.monotonic() - started,
        )

    def count_rows(self, batch_id: int, *, cancel: threading.Event) -> StateCount:
        """The number of rows of both sides by state partition."""
        started = time.monotonic()
        with self._cancellable(cancel):
            ids = {side: self._id_count(side, batch_id) for side in self.plan.deduplicated}
            left, right = (self._counts(side, batch_id, ids.get(side)) for side in SIDES)
        return StateCount(
            batch_id=batch_id,
            counted_at=datetime.now(UTC),
            duration_seconds=time.monotonic() - started,
            left=left,
            right=right,
        )

    def _id_count(self, side: Side, batch_id: int) -> int:
        return stored_ids(self.spark, self.plan, self.location, side, batch_id).count()

    def _counts(self, side: Side, batch_id: int, stored_ids: int | None) -> SideCount:
        plan = self.plan.side(side)
        register_in_time_zone(self.spark, plan.time_zone)
        key = F.array(*(F.expr(f"cast(({part.sql}) AS STRING)") for part in plan.key))
        counts = (
            self._state(side, batch_id)
            .groupBy(STATE_PARTITION)
            .agg(
                F.count(F.lit(1)).alias("rows"),
                F.count(F.nullif(MATCHED, F.lit(True))).alias("unmatched"),
                F.min(EVENT_TIME).alias("oldest"),
                F.first(key).alias("key"),
            )
            .sort(STATE_PARTITION)
            .collect()
        )
        partitions = [
            PartitionCount(
                partition=row[STATE_PARTITION],
                rows=row.rows,
                unmatched_rows=row.unmatched if self.plan.marks_matched(side) else None,
                event_time_min=_moment(row.oldest),
            )
            for row in counts
        ]
        return SideCount.of(partitions, [list(row.key) for row in counts], stored_ids)

    def _state(self, side: Side, batch_id: int) -> DataFrame:
        return join_state(self.spark, self.plan, self.location, side, batch_id)

    def _is_key(self, state: DataFrame, side: SidePlan, key: Sequence[str]) -> Column:
        """Condition that a row has the key. Raises RequestError for a value of another type."""
        if len(key) != len(side.key):
            names = ", ".join(part.text for part in side.key)
            raise RequestError(
                f"the key of side {side.side} has {len(side.key)} part(s), {names}, and the "
                f"request has {len(key)}: give one value for each part, in this order"
            )
        register_in_time_zone(self.spark, side.time_zone)
        parts = [F.expr(f"({part.sql})") for part in side.key]
        types = [field.dataType for field in state.select(*parts).schema]
        values = [
            key_value(text, part.text, kind, is_value=self._is_value(text, kind))
            for part, kind, text in zip(side.key, types, key, strict=True)
        ]
        return reduce(
            operator.and_,
            (
                part.eqNullSafe(F.lit(value).cast(kind))
                for part, kind, value in zip(parts, types, values, strict=True)
            ),
        )

    def _is_value(self, text: str, kind: DataType) -> bool:
        """Whether Spark can cast `text` to that type. Computed in the driver, without tasks."""
        one_row = self.spark.sql("SELECT * FROM VALUES (1)")
        try:
            [row] = one_row.select(F.lit(text).try_cast(kind).isNotNull()).collect()
        except PySparkException:  # text cannot be cast to an array, a map or a struct
            return False
        return bool(row[0])

    @contextmanager
    def _cancellable(self, cancel: threading.Event) -> Iterator[None]:
        """Cancels the Spark jobs of this thread once `cancel` is set, and raises CancelledError."""
        context = self.spark.sparkContext
        group = f"state-{uuid.uuid4()}"
        done = threading.Event()

        def watch() -> None:
            while not done.is_set():
                if cancel.wait(_END_SECONDS):
                    context.cancelJobGroup(group)  # the jobs of the group that run now
                    done.wait(_REPEAT_SECONDS)

        watcher = threading.Thread(target=watch, name="state-cancel", daemon=True)
        # Without interrupts: RocksDB would stay open if one ended `close` of the reader. The reader
        # checks before each row whether its task is cancelled.
        context.setJobGroup(group, "state lookup", interruptOnCancel=False)
        watcher.start()
        try:
            yield
        except Exception as error:
            if cancel.is_set():
                raise CancelledError("the lookup was cancelled") from error
            raise
        finally:
            done.set()
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def key_value(text: str, name: str, kind: DataType, *, is_value: bool) -> str | None:
    """A part of a requested key. None: null, which is the text `null` unless that is a value.

    Rows with a null key are in state only with `null_safe`; `explain` explains their records.
    """
    if is_value:
        return text
    if text == NULL:
        return None
    raise RequestError(
        f"the key part {name} has type {kind.simpleString().upper()}, and {text!r} is not a value "
        "of this type: write the value as in the results"
    )


def _shown(field: StructField) -> Column:
    """A DECIMAL as text: a JSON number has the digits of a double for most readers."""
    column = F.col(f"`{field.name}`")
    is_decimal = isinstance(field.dataType, DecimalType)
    return column.cast("string").alias(field.name) if is_decimal else column


def _state_row(row: Row, side: SidePlan) -> StateRow:
    position = row[POSITION]
    topic, partition, offset = side.topic, None, None
    if position is not None:
        number, offset = partition_and_offset(position)
        topic, partition = side.topics.place(number)
    return StateRow(
        row=_without_prefix(json.loads(row.row), side.side),
        event_time=_moment(row[EVENT_TIME]),
        topic=topic,
        partition=partition,
        offset=offset,
        matched=row[MATCHED],
        leaves_after=_moment(row[LEAVES_AFTER]),
    )


def _without_prefix(row: dict[str, object], side: Side) -> dict[str, object]:
    """Columns by their names in the spec: `left_ad_id` is ad_id."""
    return {name.removeprefix(f"{side}_"): value for name, value in row.items()}


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else from_epoch_ms(milliseconds)
