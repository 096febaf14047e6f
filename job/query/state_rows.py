"""Number of rows in state: counted once, then updated with the rows that batches store and remove.

Spark's own count (trackTotalNumberOfRows) looks up each key in RocksDB before it writes it: twice
for a row that is stored, twice for one that is removed. It also counts rows of one side with equal
key and event time as one, because they share an entry of the store. Pure.
"""

from collections import OrderedDict

# A count is valid for one batch and takes seconds, or a minute if the state is large. Later batches
# may end meanwhile.
BATCHES_REMEMBERED = 10_000

_NO_BATCH = -1


class StateRowCounter:
    def __init__(self) -> None:
        self._last = _NO_BATCH
        # Per batch: rows stored minus rows removed, summed from the first remembered batch.
        self._sums: OrderedDict[int, int] = OrderedDict({_NO_BATCH: 0})
        # Rows in state before that batch. None: unknown until the next count.
        self._rows_before: int | None = 0
        self._pending_count: tuple[int, int] | None = None

    def on_start(self, batch_id: int | None) -> None:
        """The query starts. `batch_id`: last batch in its checkpoint. None: it is new."""
        if batch_id is None:
            self._forget(_NO_BATCH)
            self._rows_before = 0
        elif batch_id != self._last:
            self._forget(batch_id)

    def add_batch(self, batch_id: int, stored: int, removed: int) -> None:
        """After a gap in the batch ids the number is unknown until the next count."""
        if batch_id <= self._last:
            return
        if batch_id != self._last + 1:
            self._forget(batch_id - 1)
        self._sums[batch_id] = self._sums[self._last] + stored - removed
        self._last = batch_id
        if len(self._sums) > BATCHES_REMEMBERED:
            self._sums.popitem(last=False)
        if self._pending_count is not None:
            self.set_count(*self._pending_count)

    def set_count(self, batch_id: int, rows: int) -> None:
        """`rows` were in state after `batch_id`. The report of that batch may arrive later."""
        self._pending_count = (batch_id, rows) if batch_id > self._last else None
        if batch_id in self._sums:
            self._rows_before = rows - self._sums[batch_id]

    def after(self, batch_id: int) -> int | None:
        """Rows in state after the batch. None: unknown."""
        if self._rows_before is None or batch_id not in self._sums:
            return None
        return self._rows_before + self._sums[batch_id]

    def _forget(self, last: int) -> None:
        self._last, self._sums = last, OrderedDict({last: 0})
        self._rows_before = None
        self._pending_count = None
