"""How many rows the join holds: counted once, then carried on by what batches store and remove.

Spark's own count (trackTotalNumberOfRows) looks up each key in RocksDB that it writes: twice for a
row that comes, twice for one that leaves. And rows of one side with equal key and event time, which
share an entry of the store, are one to it. Pure.
"""

from collections import OrderedDict

# A count takes seconds, or a minute where state is large, and says of which batch it is: so many
# batches may have ended meanwhile.
BATCHES_REMEMBERED = 10_000

_NOTHING_YET = -1


class StateRows:
    """Rows held after each of the last batches; None as long as they were not counted."""

    def __init__(self) -> None:
        self._last = _NOTHING_YET
        # Batch -> rows stored less rows removed since the first batch that is remembered.
        self._since: OrderedDict[int, int] = OrderedDict({_NOTHING_YET: 0})
        self._held_before: int | None = 0
        self._count_to_come: tuple[int, int] | None = None

    def begins_after(self, batch_id: int | None) -> None:
        """The query starts; `batch_id` is the last batch that its checkpoint says has ended."""
        if batch_id is None:
            self._forget(_NOTHING_YET)
            self._held_before = 0
        elif batch_id != self._last:
            self._forget(batch_id)

    def ended(self, batch_id: int, stored: int, removed: int) -> None:
        """A batch whose report was left out makes the number unknown until the next count."""
        if batch_id <= self._last:
            return
        if batch_id != self._last + 1:
            self._forget(batch_id - 1)
        self._since[batch_id] = self._since[self._last] + stored - removed
        self._last = batch_id
        if len(self._since) > BATCHES_REMEMBERED:
            self._since.popitem(last=False)
        if self._count_to_come is not None:
            self.counted(*self._count_to_come)

    def counted(self, batch_id: int, rows: int) -> None:
        """So many there were after `batch_id`, whose report may be still to come."""
        self._count_to_come = (batch_id, rows) if batch_id > self._last else None
        if batch_id in self._since:
            self._held_before = rows - self._since[batch_id]

    def after(self, batch_id: int) -> int | None:
        if self._held_before is None or batch_id not in self._since:
            return None
        return self._held_before + self._since[batch_id]

    def _forget(self, last: int) -> None:
        self._last, self._since = last, OrderedDict({last: 0})
        self._held_before = None
        self._count_to_come = None
