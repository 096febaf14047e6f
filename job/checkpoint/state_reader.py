"""The rows that the join holds, read from the checkpoint as of the end of a batch.

Through Spark's state data source, in one task, so that the query keeps the other cores. The state
of a running query is not touched: the source loads a copy of its own.
"""

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
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from job.errors import CancelledError, CheckpointError, RequestError
from job.instants import from_epoch_ms
from job.join_spec.durations import milliseconds
from job.join_spec.expressions import SIDES, Side
from job.plan.plan import JoinPlan, SidePlan, window_end_column
from job.plan.position import partition_and_offset, position_column
from job.protocol.answers import StateAnswer, StateRow
from job.protocol.reports import PartitionCensus, StateCensus

# Where each state format keeps a side's rows, each with a flag that says whether one matched it.
_STORES = {"2": "{side}-keyWithIndexToValue", "4": "{side}-keyWithTsToValues"}
_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
_CANCEL_SECONDS = 0.2


@dataclass(frozen=True)
class StateReader:
    """Reads the checkpoint at `location`, which the query of `plan` has written."""

    spark: SparkSession
    plan: JoinPlan
    location: str

    def rows(
        self, side: Side, key: Sequence[str], batch_id: int, *, limit: int, cancel: threading.Event
    ) -> StateAnswer:
        """The rows of one key, its parts as text; RequestError where they are no such key."""
        started = time.monotonic()
        side_plan = self.plan.side(side)
        held = self._held(side, batch_id)
        held = held.where(self._is_key(held, side_plan, key))
        columns = [
            F.to_json(F.struct(*(f"`{name}`" for name in _shown(held)))).alias("row"),
            F.unix_millis(F.col(f"`{side_plan.event_time_column}`")).alias("event_time"),
            F.col(position_column(side)).alias("position"),
            self._matched(side).alias("matched"),
            self._leaves_after(side_plan).alias("leaves_after"),
        ]
        with self._cancellable(cancel):
            found = held.select(*columns).sort("event_time").limit(limit + 1).collect()
        return StateAnswer(
            side=side,
            key=list(key),
            batch_id=batch_id,
            rows=[_state_row(row, side_plan) for row in found[:limit]],
            more=len(found) > limit,
            seconds=time.monotonic() - started,
        )

    def census(self, batch_id: int, *, cancel: threading.Event) -> StateCensus:
        """The rows of both sides, counted by state partition."""
        started = time.monotonic()
        with self._cancellable(cancel):
            left, right = (self._counted(side, batch_id) for side in SIDES)
        return StateCensus(
            batch_id=batch_id,
            at=datetime.now(UTC),
            seconds=time.monotonic() - started,
            left=left,
            right=right,
        )

    def _counted(self, side: Side, batch_id: int) -> list[PartitionCensus]:
        event_time = F.col(f"`{self.plan.side(side).event_time_column}`")
        counts = (
            self._held(side, batch_id)
            .groupBy("partition_id")
            .agg(
                F.count(F.lit(1)).alias("rows"),
                F.count(F.nullif(self._matched(side), F.lit(True))).alias("unmatched"),
                F.unix_millis(F.min(event_time)).alias("oldest"),
            )
        )
        return [
            PartitionCensus(
                partition=row.partition_id,
                rows=row.rows,
                unmatched=row.unmatched if self.plan.marks_matched(side) else None,
                event_time_min=None if row.oldest is None else from_epoch_ms(row.oldest),
            )
            for row in sorted(counts.collect(), key=lambda row: row.partition_id)
        ]

    def _held(self, side: Side, batch_id: int) -> DataFrame:
        """The columns of the dataflow, `matched` and `partition_id`; one Spark partition."""
        store = _STORES[self.plan.spark_conf[_FORMAT]].format(side=side)
        try:
            state = (
                self.spark.read.format("statestore")
                .option("path", self.location)
                .option("storeName", store)
                .option("batchId", batch_id)
                .load()
            )
        except PySparkException as error:
            raise CheckpointError(
                f"the state at {self.location} cannot be read as of batch {batch_id}: "
                f"{str(error).splitlines()[0]}"
            ) from error
        return state.select("value.*", "partition_id").coalesce(1)

    def _is_key(self, held: DataFrame, side: SidePlan, key: Sequence[str]) -> Column:
        """Whether a row has the key; RequestError where a part is no value of its type."""
        if len(key) != len(side.key):
            names = ", ".join(part.text for part in side.key)
            raise RequestError(
                f"the key of side {side.side} has {len(side.key)} part(s), {names}, "
                f"and {len(key)} came: give one for each, in this order"
            )
        parts = [F.expr(f"({part.sql})") for part in side.key]
        types = [field.dataType for field in held.select(*parts).schema]
        for part, kind, text in zip(side.key, types, key, strict=True):
            if not self._is_value(text, kind):
                raise RequestError(
                    f"the key part {part.text} is of type {kind.simpleString().upper()}, and the "
                    "text that was given for it is no such value: give it as the job writes it"
                )
        return reduce(
            operator.and_,
            (
                part.eqNullSafe(F.lit(text).cast(kind))
                for part, kind, text in zip(parts, types, key, strict=True)
            ),
        )

    def _is_value(self, text: str, kind: DataType) -> bool:
        """Whether Spark reads `text` as that type. Computed in the driver, without tasks."""
        one_row = self.spark.sql("SELECT * FROM VALUES (1)")
        try:
            [row] = one_row.select(F.lit(text).try_cast(kind).isNotNull()).collect()
        except PySparkException:  # text cannot be cast to an array, a map or a struct
            return False
        return bool(row[0])

    def _matched(self, side: Side) -> Column:
        return F.col("matched") if self.plan.marks_matched(side) else F.lit(None).cast("boolean")

    def _leaves_after(self, side: SidePlan) -> Column:
        """Epoch milliseconds."""
        if self.plan.window is not None:
            return F.unix_millis(F.col(window_end_column(side.side))) - 1
        if side.retention is None:
            return F.lit(None).cast("bigint")
        kept = milliseconds(side.retention)
        if self.plan.event_time_in_key:
            kept -= 1
        return F.unix_millis(F.col(f"`{side.event_time_column}`")) + F.lit(kept)

    @contextmanager
    def _cancellable(self, cancel: threading.Event) -> Iterator[None]:
        """Ends the Spark job of this thread once `cancel` is set; CancelledError then."""
        context = self.spark.sparkContext
        group = f"state-{uuid.uuid4()}"
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_CANCEL_SECONDS):
                if cancel.is_set():
                    context.cancelJobGroup(group)

        watcher = threading.Thread(target=watch, name="state-cancel", daemon=True)
        context.setJobGroup(group, "state look-up", interruptOnCancel=True)
        watcher.start()
        try:
            yield
        except Exception as error:
            if cancel.is_set():
                raise CancelledError("the look-up was given up") from error
            raise
        finally:
            done.set()
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def _state_row(row: Row, side: SidePlan) -> StateRow:
    partition, offset = partition_and_offset(row.position)
    return StateRow(
        row=_without_side(json.loads(row.row), side.side),
        event_time=from_epoch_ms(row.event_time),
        topic=side.topic,
        partition=partition,
        offset=offset,
        matched=row.matched,
        leaves_after=None if row.leaves_after is None else from_epoch_ms(row.leaves_after),
    )


def _shown(held: DataFrame) -> list[str]:
    hidden = {"matched", "partition_id", *map(position_column, SIDES)}
    return [name for name in held.columns if name not in hidden and not _is_window(name)]


def _is_window(name: str) -> bool:
    return name in {window_end_column(side) for side in SIDES}


def _without_side(row: dict[str, object], side: Side) -> dict[str, object]:
    """By the names of the spec: `left_ad_id` is ad_id."""
    return {name.removeprefix(f"{side}_"): value for name, value in row.items()}
