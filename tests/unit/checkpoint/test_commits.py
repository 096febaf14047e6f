"""The watermark after the last batch, from Spark's commit log."""

import json
from typing import Any

import pytest

from job.checkpoint.commits import interval_watermark_ms, next_watermark_ms
from job.event_time.interval import Interval

ENDS: Any = {"left": {0: 5}, "right": {0: 5}}


class Ended:
    """A checkpoint after batch 7."""

    last_batch_id = 7

    def __init__(self, interval: Interval | None) -> None:
        self.recorded_interval = interval
        self.folder = self

    def text(self, name: str) -> str:
        assert "query/commits/7" == name
        return "v2\n" + json.dumps({"nextBatchWatermarkMs": 950})


@pytest.mark.parametrize(
    ("interval", "expected_ms"),
    [
        (None, None),
        (Interval(batch_id=7, watermark_ms=100), 950),
        (Interval(batch_id=6, watermark_ms=100), None),  # a micro-batch has followed
        (Interval(batch_id=7, watermark_ms=100, repeat_until=ENDS), None),  # a repetition
    ],
)
def test_watermark_of_an_interval_is_that_of_its_end(
    interval: Interval | None, expected_ms: int | None
) -> None:
    checkpoint: Any = Ended(interval)

    assert expected_ms == interval_watermark_ms(checkpoint)
    assert 950 == next_watermark_ms(checkpoint, 7)
