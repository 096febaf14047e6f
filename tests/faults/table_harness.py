"""The harnesses of a stream that is joined with a table: their load, and their oracles."""

from collections.abc import Sequence

from job.spec.engine import Engine
from tests.faults.final_oracle import check_final_results, rows_in_state
from tests.faults.harness import ROWS_MS, SIDES, T0, WATERMARK_RECORD_MS, Harness
from tests.faults.join_spec import FINAL, LATEST, table_spec
from tests.faults.oracle import CheckResult, Record
from tests.faults.table_oracle import check_table_results, live_keys
from tests.integration.jobs import START_SECONDS
from tests.integration.topics import Sent
from tests.polling import wait_until


class TableHarness(Harness):
    """The records of the table are acknowledged before the rows of the stream are created."""

    send_order = ("right", "left")
    # The records of a key in two partitions have no order.
    growing = ("left", "out")
    # No row waits for the watermark.
    advances_alone = False
    _table = LATEST

    def _spec(self) -> str:
        names = (self.name, self._servers, self.checkpoint)
        return table_spec(*names, self.engine, self._interval_seconds, self._table)

    def feed(self, count: int, *, abort: bool = False) -> None:
        """`count` records of the table, of which some delete their key, then as many rows of the
        stream; both with null keys."""
        keys = max(10, count // 3)
        for side in self.send_order:
            self.send(side, [self._fed(side, keys) for _ in range(count)], abort=abort)
        if abort:
            # Until then the transactions hide later records of the table, also acknowledged ones.
            wait_until(
                lambda: not any(map(self.hides_records, SIDES)), START_SECONDS, "both are aborted"
            )

    def _fed(self, side: str, keys: int) -> Sent:
        k, chance = f"k{self.random.randrange(keys)}", self.random.random()
        if side == "right" and chance < 0.1:
            return Sent(None, key=k, headers={"n": str(self._number())})
        t = self._base + self.random.randrange(ROWS_MS)
        return self._record(None if chance > 0.98 else k, t)

    def feed_late(self, count: int) -> None:
        """None: no row is late."""

    def _check_results(
        self, left: Sequence[Record], right: Sequence[Record], output: Sequence[Record]
    ) -> CheckResult:
        is_ordered = self.engine is Engine.MICRO_BATCH
        return check_table_results(left, right, output, is_ordered=is_ordered)

    def _rows_in_state(self, _: Sequence[Record], right: Sequence[Record]) -> int:
        return live_keys(right)


class FinalTableHarness(TableHarness):
    """A left row has its result once the watermark has passed it."""

    # A row in a new partition could be late: the job reads the partition only after it knows it.
    growing = ("out",)
    advances_alone = True
    _table = FINAL

    def pair(self, k: str) -> None:
        """Also a left row that lets the watermark pass the pair."""
        super().pair(k)
        self.send("left", [self._record("later", self._base + WATERMARK_RECORD_MS)])
        self._round += 1

    def _fed(self, _: str, keys: int) -> Sent:
        k = None if self.random.random() > 0.98 else f"k{self.random.randrange(keys)}"
        return self._record(k, self._base + self.random.randrange(ROWS_MS))

    def feed_late(self, count: int) -> None:
        late = range(count)
        rows = [{"k": f"late{n}", "t": T0 + n, "n": self._number(), "late": True} for n in late]
        self.send("left", [Sent(row, key=str(row["k"])) for row in rows])

    def _check_results(
        self, left: Sequence[Record], right: Sequence[Record], output: Sequence[Record]
    ) -> CheckResult:
        return check_final_results(left, right, output)

    def _rows_in_state(self, left: Sequence[Record], right: Sequence[Record]) -> int:
        return rows_in_state(left, right)
