"""A modelled Spark that reads a stream and a table: what the driver promises of them.

A record of the table that was there before a record of the stream is in the same batch or in an
earlier one.
"""

from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

from job.query import driver
from job.spec.sides import Side
from tests.unit.delivery.schedules import ViolationError
from tests.unit.query import modelled_spark
from tests.unit.query.modelled_spark import DELAY_MS, PARTITIONS, Spark

STREAM, TABLE = modelled_spark.SIDES
PLAN: Any = SimpleNamespace(
    streams=(STREAM,), table_side=TABLE, stream_waits=True, side=modelled_spark.PLAN.side
)


class SparkWithTable(Spark):
    def __init__(self, seed: int, rules: ModuleType = driver) -> None:
        self._seen: dict[int, list[Mapping[int, int]]] = {n: [] for n in PARTITIONS}
        """The ends of the table when each record of the stream arrived."""
        super().__init__(2 * seed, rules, PLAN)  # without a replay

    @property
    def wanted_watermark(self) -> int:
        return self._newest[STREAM] - DELAY_MS[STREAM]

    def _batch(self) -> bool:
        """Spark plans again: the first plan of a run does not read the stream."""
        return super()._batch() or super()._batch()

    def _arrive(self, count: int) -> None:
        super()._arrive(count)
        self._note()

    def _note(self) -> None:
        """Of the records that have arrived together, those of the table are first."""
        ends = self._latest()
        for n in PARTITIONS:
            missing = ends[STREAM][n] - len(self._seen[n])
            self._seen[n] += [ends[TABLE]] * missing

    def _ends(
        self, side: Side, starts: Mapping[int, int], latest: Mapping[int, int]
    ) -> dict[int, int]:
        if side == STREAM:
            return super()._ends(side, starts, latest)
        if self._count() < modelled_spark.RECORDS:
            self._arrive(self._random.randrange(3))  # after the ends of the stream were requested
        now = self._latest()[TABLE]
        limit = self._decide(self._rules.EndsRequested(side, starts, now))
        return dict(now if limit is None else limit)

    def _check(self, batch_id: int) -> None:
        self._note()
        ends, starts = self._planned[batch_id][0], self._read_up_to()
        for n in PARTITIONS:
            for seen in self._seen[n][starts[STREAM][n] : ends[STREAM][n]]:
                if any(ends[TABLE][m] < seen[m] for m in PARTITIONS):
                    raise ViolationError(f"a row misses versions: {seen}, read {ends[TABLE]}")
