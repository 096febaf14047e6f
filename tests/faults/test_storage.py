"""The checkpoint's disk: full, and damaged."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from tests.faults.rig import Rig
from tests.integration.jobs import START_SECONDS
from tests.polling import wait_until

ROWS = 300
DISK_BYTES = 48 * 2**20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["/bin/mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system: run as root")
    try:
        yield folder
    finally:
        subprocess.run(["/bin/umount", "-l", str(folder)], check=True)


def test_full_disk_is_told_and_once_there_is_room_the_job_goes_on(
    kafka: EmbeddedKafka, small_disk: Path, tmp_path: Path
) -> None:
    rig = Rig(kafka, "disk", tmp_path, checkpoint=small_disk / "checkpoint")
    with rig.job as job:
        rig.feed(ROWS)
        rig.recovered(time.monotonic())

        ballast = small_disk / "ballast"
        fill(ballast)
        assert 0 == shutil.disk_usage(small_disk).free
        rig.feed(ROWS)
        failure = job.wait_for_state("FAILED").last_failure
        assert failure is not None
        assert "the disk is full" in failure.message

        ballast.unlink()
        job.ask("restart")
        rig.recovered(time.monotonic())
        rig.verdict(rig.settle())


def fill(ballast: Path) -> None:
    """Until not a byte goes in any more."""
    with ballast.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


# What Spark says of each, see job/checkpoint/log_check.py for what is mended at a start.
def test_damaged_checkpoint_is_mended_or_refused_and_never_wrong(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    often = {"STREAMJOIN_TEST_MAINTENANCE_SECONDS": "1"}
    rig = Rig(kafka, "damage", tmp_path, environment=often)
    with rig.job as job:
        # Enough batches for a snapshot beside the changes.
        for _ in range(8):
            rig.feed(10)
            rig.recovered(time.monotonic())
        wait_until(lambda: snapshots(rig), START_SECONDS, "a snapshot is written")
        assert 0 == job.terminate()
        whole = tmp_path / "whole"
        shutil.copytree(rig.checkpoint, whole)

        for damage in (take_changes_away, take_metadata_away, take_state_away):
            damage(rig)
            job.start()
            rig.feed(10)
            failure = job.wait_for_state("FAILED").last_failure
            assert failure is not None
            assert "checkpoint" == failure.code, failure
            assert "the checkpoint is damaged" in failure.message, failure
            assert "streamjoin checkpoint restore" in failure.message
            assert 1 == job.terminate()
            shutil.rmtree(rig.checkpoint)
            shutil.copytree(whole, rig.checkpoint)

        for snapshot in newest_snapshots(rig):
            spoil(snapshot)
        job.start()
        rig.feed(10)
        status = rig.settle()
        batches = job.ask("progress")["result"]["batches"]
        assert 0 < sum(
            batch["state_custom"]["rocksdbNumSnapshotsAutoRepaired"] for batch in batches
        )
        rig.verdict(status)


def state_files(rig: Rig, pattern: str) -> list[Path]:
    return sorted((rig.checkpoint / "query" / "state" / "0").rglob(pattern))


def snapshots(rig: Rig) -> list[Path]:
    return state_files(rig, "*.zip")


def newest_snapshots(rig: Rig) -> list[Path]:
    """Of each state partition."""
    folders = {path.parent for path in snapshots(rig)}
    return [max(folder.glob("*.zip"), key=lambda path: path.stat().st_mtime) for folder in folders]


def spoil(path: Path) -> None:
    path.write_bytes(b"spoilt")
    forget_checksum(path)


def forget_checksum(path: Path) -> None:
    """Hadoop's, of the local file system: other file systems have none."""
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def take_changes_away(rig: Rig) -> None:
    for path in state_files(rig, "*.changelog"):
        path.unlink()
        forget_checksum(path)


def take_metadata_away(rig: Rig) -> None:
    (rig.checkpoint / "query" / "metadata").unlink()


def take_state_away(rig: Rig) -> None:
    shutil.rmtree(rig.checkpoint / "query" / "state")
