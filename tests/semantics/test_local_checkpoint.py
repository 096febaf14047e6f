"""A checkpoint on a local disk: no process per file, and a link to a folder is that folder."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from job.checkpoint.folder import Folder
from job.checkpoint.maintenance import remove_temporary_files
from tests.semantics.streams import T0, Stream, spec_text

FILE_PROGRAMS = {"chmod", "chown", "readlink", "ls", "ln", "stat", "bash"}
"""Programs that Hadoop starts for files. Spark may start others, once or for earlier sessions."""


@contextmanager
def started_programs(spark: SparkSession, file: Path) -> Iterator[list[str]]:
    """Commands that the JVM starts in the block; complete at its end."""
    jvm = spark._jvm
    assert jvm is not None
    commands: list[str] = []
    recording = jvm.jdk.jfr.Recording()
    recording.enable("jdk.ProcessStart")
    recording.start()
    try:
        yield commands
    finally:
        recording.stop()
        recording.dump(jvm.java.io.File(str(file)).toPath())
        recording.close()
    events = jvm.jdk.jfr.consumer.RecordingFile.readAllEvents(jvm.java.io.File(str(file)).toPath())
    commands += [event.getString("command") for event in events]


def test_no_program_is_started_for_the_files_of_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(spark, tmp_path, spec_text())
    try:
        stream.feed(left=[{"k": "a", "t": T0, "a": 1}])
        with started_programs(spark, tmp_path / "started.jfr") as commands:
            for second in range(5):
                stream.feed(right=[{"k": "a", "t": T0 + second, "b": second}])
        assert [] == [command for command in commands if command.split()[0] in FILE_PROGRAMS]
    finally:
        stream.stop()


def test_link_to_a_folder_is_that_folder(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "checkpoint").symlink_to(tmp_path / "disk")
    Folder(spark, str(tmp_path / "disk")).write("desired_state.json", "{}")

    linked = Folder(spark, str(tmp_path / "checkpoint"))
    assert ["desired_state.json"] == linked.names()
    assert f"file:{tmp_path}/disk" == linked.root


def test_document_is_one_file_so_that_no_kill_leaves_half_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Hadoop would add a second file with a checksum."""
    folder = Folder(spark, str(tmp_path))
    folder.write("lease.json", '{"pid": 1}')
    assert ["lease.json"] == [file.name for file in tmp_path.iterdir()]

    # Hadoop writes one when it copies a file.
    (tmp_path / ".lease.json.crc").write_bytes(b"crc\x00\x00\x00\x02\x00\x01\x02\x03\x04")
    folder.write("lease.json", '{"pid": 2}')
    assert '{"pid": 2}' == folder.text("lease.json")


def test_document_and_its_name_are_on_disk_after_a_write(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the second call a power failure may undo the rename."""
    synced = []

    def fsync(number: int) -> None:
        synced.append(
            (Path(f"/proc/self/fd/{number}").resolve(), [file.name for file in tmp_path.iterdir()])
        )

    monkeypatch.setattr(os, "fsync", fsync)
    Folder(spark, str(tmp_path)).write("lease.json", '{"pid": 1}')

    (file, _), folder = synced
    assert tmp_path == file.parent
    assert (tmp_path, ["lease.json"]) == folder


@pytest.mark.parametrize(
    ("fails", "number", "is_written"),
    [
        ("folder", errno.EINVAL, True),
        ("folder", errno.ENOTSUP, True),
        ("folder", errno.EIO, False),
        ("folder", errno.ENOSPC, False),
        ("file", errno.EINVAL, False),
    ],
)
def test_document_is_written_if_the_file_system_has_no_fsync_of_a_folder(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fails: str,
    number: int,
    *,
    is_written: bool,
) -> None:
    """Some network file systems answer EINVAL or ENOTSUP. Every other error is one of the disk."""

    def fsync(descriptor: int) -> None:
        is_folder = Path(f"/proc/self/fd/{descriptor}").resolve().is_dir()
        if is_folder == (fails == "folder"):
            raise OSError(number, os.strerror(number))

    folder = Folder(spark, str(tmp_path))
    monkeypatch.setattr(os, "fsync", fsync)
    descriptors = Path("/proc/self/fd")
    open_files = len([*descriptors.iterdir()])
    with nullcontext() if is_written else pytest.raises(OSError, match=os.strerror(number)):
        folder.write("lease.json", '{"pid": 1}')

    assert open_files == len([*descriptors.iterdir()])
    if is_written:
        assert '{"pid": 1}' == folder.text("lease.json")


def test_old_temporary_files_of_killed_jobs_are_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    state = tmp_path / "query" / "state" / "0" / "0"
    state.mkdir(parents=True)
    ages = {
        tmp_path / ".lease.json.0a1b.tmp": 2,
        state / ".7.changelog.1b2c.tmp": 2,
        state / "..7.changelog.1b2c.tmp.crc": 2,
        state / ".8.changelog.3d4e.tmp": 0,  # Another task may still write it.
        state / "7.changelog": 2,
        state / "of_the_user.tmp": 2,
    }
    for file, hours in ages.items():
        file.write_bytes(b"content")
        at = (now - timedelta(hours=hours)).timestamp()
        os.utime(file, (at, at))

    removed = remove_temporary_files(Folder(spark, str(tmp_path)), now)

    left = {file.name for file in ages if file.exists()}
    assert {".8.changelog.3d4e.tmp", "7.changelog", "of_the_user.tmp"} == left
    assert 3 == len(removed)
