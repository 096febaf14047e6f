"""Every file that the job writes into a checkpoint has a format version, and is read again."""

import json
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.folder import Folder
from job.checkpoint.lease import Lease
from job.checkpoint.maintenance import Manifest, create_backup
from job.checkpoint.reset import reset_checkpoint
from job.event_time.interval import Interval
from job.event_time.partitions import Offsets, Partitions
from job.protocol.status import QueryState
from job.spec.start_positions import StartPositions

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def plan_a_batch(root: Path) -> None:
    """From then on the settings are frozen."""
    log = root / "query" / "offsets"
    log.mkdir(parents=True)
    (log / "0").write_text("v2\n{}\n")


def test_every_file_has_a_format_and_is_read_again(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "checkpoint"
    checkpoint = Checkpoint(spark, str(root))
    positions = StartPositions(left={0: 5}, right="latest")
    reset_checkpoint(checkpoint, positions, NOW)
    checkpoint.freeze(None, {"join.type": "inner"})
    checkpoint.desired_state = QueryState.PAUSED
    checkpoint.ensure_query_id()
    checkpoint.owns_name = True
    checkpoint.topic_ids = {"left": "id"}
    checkpoint.partitions = Partitions.none()
    lease = Lease(checkpoint.folder, lost=lambda: None)
    lease.take()
    create_backup(checkpoint.folder, Folder(spark, str(tmp_path / "backup")), checkpoint, NOW)

    files = [*root.glob("*.json"), tmp_path / "backup" / Manifest.file_name]
    assert {
        *("desired_state", "event_times", "exactly_once", "fingerprint", "lease", "replaces"),
        *("starts", "topics", "backup"),
    } == {file.stem for file in files}
    assert {1} == {json.loads(file.read_text())["format"] for file in files}
    lease.release()
    assert positions == checkpoint.start_positions
    assert checkpoint.fingerprint is None
    plan_a_batch(root)
    assert {"join.type": "inner"} == checkpoint.fingerprint
    assert QueryState.PAUSED is checkpoint.desired_state
    assert checkpoint.owns_name
    assert checkpoint.may_replace_any_query


def test_interval_is_repeated_until_spark_has_committed_what_it_has_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = Checkpoint(spark, str(tmp_path))
    checkpoint.freeze(None, {"left.topic": "l", "right.topic": "r"})
    assert (None, True) == (checkpoint.interrupted_interval, checkpoint.is_committed)
    _plan(tmp_path, 6, 10)
    _commit(tmp_path, 6)
    interval = Interval(batch_id=7, watermark_ms=5_000)
    checkpoint.record_interval(interval)
    assert (interval, True) == (checkpoint.interrupted_interval, checkpoint.is_committed)

    # The interval has ended: Spark runs exactly this input again.
    _plan(tmp_path, 7, 20)
    assert (Interval(batch_id=7, watermark_ms=5_000, repeat_until=_both(20)), False) == (
        checkpoint.interrupted_interval,
        checkpoint.is_committed,
    )
    _commit(tmp_path, 7)
    assert (None, True) == (checkpoint.interrupted_interval, checkpoint.is_committed)

    # The interval was cut: micro-batches read up to the recorded ends.
    repeated = Interval(batch_id=8, watermark_ms=5_000, repeat_until=_both(40))
    checkpoint.record_interval(repeated)
    for batch_id, end in ((8, 30), (9, 40)):
        assert repeated == checkpoint.interrupted_interval
        _plan(tmp_path, batch_id, end)
        assert (repeated, False) == (checkpoint.interrupted_interval, checkpoint.is_committed)
        _commit(tmp_path, batch_id)
    assert (None, True) == (checkpoint.interrupted_interval, checkpoint.is_committed)


def _both(offset: int) -> Offsets:
    return {"left": {0: offset}, "right": {0: offset}}


def _plan(checkpoint: Path, batch_id: int, end: int) -> None:
    lines = (
        "v1",
        '{"batchWatermarkMs": 0}',
        f'left:{{"l":{{"0":{end}}}}}',
        f'right:{{"r":{{"0":{end}}}}}',
    )
    _write(checkpoint / "query" / "offsets" / str(batch_id), "\n".join(lines))


def _commit(checkpoint: Path, batch_id: int) -> None:
    _write(checkpoint / "query" / "commits" / str(batch_id), "v1\n{}")


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
