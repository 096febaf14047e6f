"""The disk of the checkpoint: full, and damaged."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from tests.faults.harness import Harness
from tests.integration.jobs import START_SECONDS
from tests.integration.jvms import SharedJvm
from tests.polling import wait_until

ROWS = 300
DISK_BYTES = 48 * 2**20
# Spark's default of spark.sql.streaming.stateStore.minDeltasForSnapshot.
DELTAS_PER_SNAPSHOT = 10


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system, if this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["/bin/mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system: run as root")
    try:
        yield folder
    finally:
        subprocess.run(["/bin/umount", "-l", str(folder)], check=True)


def test_full_disk_is_reported_and_the_job_continues_once_there_is_room(
    kafka: EmbeddedKafka, small_disk: Path, tmp_path: Path, jvm: SharedJvm
) -> None:
    harness = Harness(kafka, "disk", tmp_path, checkpoint=small_disk / "checkpoint", jvm=jvm)
    with harness.job as job:
        harness.feed(ROWS)
        harness.recovered(time.monotonic())

        ballast = small_disk / "ballast"
        fill(ballast)
        assert 0 == shutil.disk_usage(small_disk).free
        harness.feed(ROWS)
        failure = job.wait_for_state("FAILED").last_failure
        assert failure is not None
        assert "the disk is full" in failure.message

        ballast.unlink()
        job.ask("restart")
        harness.recovered(time.monotonic())
        harness.check(harness.settle())


def fill(ballast: Path) -> None:
    """Write until no byte fits any more."""
    with ballast.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


# Damage that Spark reports. job/checkpoint/log_check.py repairs other damage at a start.
def test_damaged_checkpoint_is_repaired_or_refused(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    often = {"STREAMJOIN_TEST_MAINTENANCE_SECONDS": "1"}
    harness = Harness(kafka, "damage", tmp_path, environment=often, jvm=jvm)
    with harness.job as job:
        # Enough batches for a snapshot in addition to the changelogs.
        for _ in range(8):
            harness.feed(10)
            harness.recovered(time.monotonic())
        wait_until(lambda: snapshots(harness), START_SECONDS, "a snapshot is written")
        # A snapshot of the newest version replaces all changes.
        while not 0 < changes_after_snapshot(harness) < DELTAS_PER_SNAPSHOT:
            harness.feed(10)
            harness.recovered(time.monotonic())
        assert 0 == job.terminate()
        whole = tmp_path / "whole"
        shutil.copytree(harness.checkpoint, whole)

        for take_away in (take_changes_away, take_metadata_away, take_state_away):
            take_away(harness)
            job.start()
            harness.feed(10)
            failure = job.wait_for_state("FAILED").last_failure
            assert failure is not None
            assert "checkpoint" == failure.code, failure
            assert "the checkpoint is damaged" in failure.message, failure
            assert "streamjoin checkpoint restore" in failure.message
            assert 1 == job.terminate()
            shutil.rmtree(harness.checkpoint)
            shutil.copytree(whole, harness.checkpoint)

        for snapshot in newest_snapshots(harness):
            damage(snapshot)
        job.start()
        harness.feed(10)
        status = harness.settle()
        batches = job.ask("progress")["result"]["batches"]
        assert 0 < sum(
            batch["state_custom"]["rocksdbNumSnapshotsAutoRepaired"] for batch in batches
        )
        harness.check(status)


def state_files(harness: Harness, pattern: str) -> list[Path]:
    return sorted((harness.checkpoint / "query" / "state" / "0").rglob(pattern))


def snapshots(harness: Harness) -> list[Path]:
    return state_files(harness, "*.zip")


def changes_after_snapshot(harness: Harness) -> int:
    """Number of versions of the state that are newer than the newest snapshot."""
    newest = [
        max(version(path) for path in state_files(harness, f"*{suffix}"))
        for suffix in (".zip", ".changelog")
    ]
    return newest[1] - newest[0]


def version(path: Path) -> int:
    """The version in the name of a state file, such as 12_3c5b….zip."""
    return int(path.name.partition("_")[0].partition(".")[0])


def newest_snapshots(harness: Harness) -> list[Path]:
    """The newest snapshot of each state partition."""
    folders = {path.parent for path in snapshots(harness)}
    return [max(folder.glob("*.zip"), key=lambda path: path.stat().st_mtime) for folder in folders]


def damage(path: Path) -> None:
    path.write_bytes(b"damaged")
    forget_checksum(path)


def forget_checksum(path: Path) -> None:
    """The checksum of Hadoop's local file system: other file systems have none."""
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def take_changes_away(harness: Harness) -> None:
    for path in state_files(harness, "*.changelog"):
        path.unlink()
        forget_checksum(path)


def take_metadata_away(harness: Harness) -> None:
    (harness.checkpoint / "query" / "metadata").unlink()


def take_state_away(harness: Harness) -> None:
    shutil.rmtree(harness.checkpoint / "query" / "state")
