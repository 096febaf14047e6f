"""The harness of a stream that is joined with a table: its load, and its oracle."""

from collections.abc import Sequence

from job.spec.engine import Engine
from tests.faults.harness import ROWS_MS, SIDES, Harness
from tests.faults.join_spec import table_spec
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

    def _spec(self) -> str:
        names = (self.name, self._servers, self.checkpoint)
        return table_spec(*names, self.engine, self._interval_seconds)

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

    def _rows_in_state(self, right: Sequence[Record]) -> int:
        return live_keys(right)
