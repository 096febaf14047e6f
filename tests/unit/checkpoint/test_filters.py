"""The filters by which a query has read its records, in the checkpoint."""

from typing import Any

from job.checkpoint.filters import earlier_filters, record_filters
from job.event_time.filters import Filter
from job.replay.cut import PlannedBatch
from tests.unit.checkpoint.test_watermark_history import Files
from tests.unit.specs import plan

BATCH = PlannedBatch(7, {"left": {0: 5}, "right": {0: 3}}, 1_000)


class Begun:
    """A checkpoint after a batch."""

    def __init__(self, batch: PlannedBatch | None = BATCH) -> None:
        self.folder = Files()
        self.last_batch_id = None if batch is None else batch.batch_id
        self._batch = batch

    def batch(self, _: int) -> PlannedBatch | None:
        return self._batch


def started(checkpoint: Any, *filters: str | None) -> list[int | None]:
    """One start after another. When the filters were changed last, after each start."""
    return [
        None if changed is None else changed.until_ms
        for changed in (
            record_filters(checkpoint, plan(left__filter=text) if text else plan(), at_ms)
            for at_ms, text in enumerate(filters)
        )
    ]


def test_changed_filter_is_kept_with_the_offsets_up_to_which_it_was_used() -> None:
    checkpoint: Any = Begun()

    assert [None, None, 2, 2] == started(checkpoint, "cost > 1", "cost > 1", None, None)

    [earlier] = earlier_filters(checkpoint)
    assert (2, BATCH.ends, 1_000) == (earlier.until_ms, earlier.offsets, earlier.watermark_ms)
    assert Filter(text="cost > 1", sql="`left_cost` > 1") == earlier.filters["left.filter"]
    assert earlier.has_read("left", 0, 4)
    assert not earlier.has_read("left", 0, 5)


def test_filter_that_was_changed_before_the_first_batch_has_read_nothing() -> None:
    checkpoint: Any = Begun(batch=None)
    started(checkpoint, "cost > 1", None)

    assert [] == list(earlier_filters(checkpoint))
