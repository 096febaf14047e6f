"""The watermark that advances while an interval runs: LiveWatermark.java."""

from collections.abc import Sequence
from contextlib import suppress

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from job.event_time.partitions import PartitionRead, Reads
from job.spark.java_classes import check_classes, java_class
from job.spark.static_call import static_call
from job.spec.sides import Side

_CLASS = "streamjoin.LiveWatermark"
_NONE = -(2**63)
_MICROS_PER_MS = 1000


class LiveWatermark:
    """One object for each run of the query in intervals."""

    def __init__(self, spark: SparkSession, inputs: Sequence[Side]) -> None:
        """`inputs`: the sides in the order of the join. Raises SetupError if its Java class was
        built from other sources."""
        check_classes(spark)
        self._inputs = inputs
        self._java = java_class(spark, "LiveWatermark").begin()
        self.run = int(self._java.run())

    def recorded(self, rows: DataFrame, side: Side, position: str, event_time: str) -> DataFrame:
        """The same rows. The tasks record each row that they read. `position`, `event_time`: SQL of
        the position in Kafka, and of the event time."""
        micros = f"coalesce(unix_micros({event_time}), cast({_NONE} AS BIGINT))"
        arguments: list[Column] = [
            F.lit(self.run),
            F.lit(self._inputs.index(side)),
            F.expr(position),
            F.expr(micros),
        ]
        is_read = static_call(
            *(rows.sparkSession, _CLASS, "read", "BooleanType", arguments),
            null_for_null=False,
            is_deterministic=False,
        )
        return rows.where(is_read)

    def read(self) -> Reads:
        """What the tasks have read in this run, by side and partition."""
        read: dict[Side, dict[int, PartitionRead]] = {side: {} for side in self._inputs}
        for line in str(self._java.partitions()).splitlines():
            side, number, next_offset, micros = map(int, line.split(" "))
            newest_ms = None if micros == _NONE else micros // _MICROS_PER_MS
            read[self._inputs[side]][number] = PartitionRead(next_offset, newest_ms)
        return read

    def offer(self, to_ms: int) -> None:
        """Let the tasks of the join evict rows by this watermark. It never goes back."""
        self._java.offer(to_ms)

    def close(self) -> None:
        with suppress(Exception):  # the JVM may be gone
            self._java.end()
