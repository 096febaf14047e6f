"""Spark's commit log: an entry for each batch that has ended."""

import json

from job.checkpoint.checkpoint import Checkpoint


def next_watermark_ms(checkpoint: Checkpoint, batch_id: int) -> int:
    """The watermark after a batch that has ended. 0: there is none."""
    entry = checkpoint.folder.text(f"query/commits/{batch_id}") or "v1\n{}"
    return int(json.loads(entry.splitlines()[1]).get("nextBatchWatermarkMs", 0))


def interval_watermark_ms(checkpoint: Checkpoint) -> int | None:
    """The watermark at the end of the last batch, if that was an interval: its watermark has
    advanced up to this one. None: the last batch was a micro-batch, or has repeated an interval."""
    interval = checkpoint.recorded_interval
    if (
        interval is None
        or interval.repeat_until is not None
        or interval.batch_id != checkpoint.last_batch_id
    ):
        return None
    return next_watermark_ms(checkpoint, interval.batch_id)
