"""A folder on any file system that Hadoop supports: local, hdfs:, s3a:, abfss:, gs:."""

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from job.errors import CheckpointError
from job.spark.hadoop_files import copy, file_system, hadoop_path, read_text, rename_over

_READS_MAX = 3
# Errors of a network file system that has no fsync of a folder: its server decides when a rename is
# on disk.
_NO_FOLDER_FSYNC = {errno.EINVAL, errno.ENOTSUP}


class Folder:
    """Paths are relative to the root, with slashes."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self.spark = spark
        if not urlsplit(location).scheme:  # otherwise Hadoop would use fs.defaultFS
            location = f"file:{Path(location).absolute()}"
        path = hadoop_path(spark, location)
        self._files = file_system(spark, path)
        # Absolute, so that log entries are unambiguous.
        self._root = self._real(self._files.makeQualified(path))
        # Two jobs that start at the same time write the same files, each with its own temporary.
        self._writer = uuid.uuid4().hex[:8]

    @property
    def root(self) -> str:
        return str(self._root.toString())

    @property
    def scheme(self) -> str:
        """Scheme of the file system: file, hdfs, s3a …"""
        return str(self._root.toUri().getScheme())

    def path(self, name: str) -> str:
        return str(self._path(name).toString())

    def exists(self, name: str) -> bool:
        return bool(self._files.exists(self._path(name)))

    def names(self, name: str = "") -> list[str]:
        """Files and folders directly in `name`. Empty: the folder does not exist."""
        path = self._path(name) if name else self._root
        if not self._files.exists(path):
            return []
        return sorted(entry.getPath().getName() for entry in self._files.listStatus(path))

    def sizes(self, name: str = "") -> dict[str, int]:
        """Bytes of each file at any depth below `name`, by its relative path."""
        path = self._path(name) if name else self._root
        if not self._files.exists(path):
            return {}
        prefix = f"{path.toUri().getPath()}/"
        return dict(sorted(_files(self._files.listFiles(path, True), prefix)))

    def text(self, name: str) -> str | None:
        """Content of a file. None: the file does not exist.

        HDFS and S3 fail a read while the file is replaced, as the lease of another job is: the read
        is retried.
        """
        for _ in range(_READS_MAX - 1):
            with suppress(Py4JJavaError):
                return read_text(self.spark, self._files, self._path(name))
        return read_text(self.spark, self._files, self._path(name))

    def write(self, name: str, text: str) -> None:
        """Replace the file atomically: a crash leaves the old file or the new one."""
        path = self._path(name)
        content = bytearray(text.encode())
        if self.scheme == "s3a":
            # The file appears when it is closed, complete. A rename would copy it, and the file
            # would be missing for a moment.
            stream = self._files.create(path, True)
            stream.write(content)
            stream.close()
            return
        if self.scheme == "file":
            self._replace(Path(path.toUri().getPath()), content)
            return
        temporary = hadoop_path(self.spark, path.getParent(), self._temporary(path.getName()))
        stream = self._files.create(temporary, True)
        try:
            stream.write(content)
            stream.hsync()
        finally:
            stream.close()
        rename_over(self.spark, self._files, temporary, path)

    def _replace(self, file: Path, content: bytearray) -> None:
        """Write without Hadoop's checksum, a second file that is renamed after the first: a kill in
        between would leave two files that do not match and cannot be read."""
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(self._temporary(file.name))
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        temporary.replace(file)
        # Otherwise a power failure may undo the rename after a later step has relied on the file.
        _sync_folder(file.parent)

    def _temporary(self, name: str) -> str:
        return f".{name}.{self._writer}.tmp"

    def remove(self, name: str) -> None:
        """Harmless if the file does not exist."""
        self._files.delete(self._path(name), False)

    def remove_folder(self, name: str) -> None:
        """Remove it with its content. Harmless if it does not exist."""
        self._files.delete(self._path(name), True)

    def move(self, name: str, target: str) -> None:
        """Move within the folder; creates the parent folders of `target`."""
        destination = self._path(target)
        self._files.mkdirs(destination.getParent())
        if not self._files.rename(self._path(name), destination):
            raise CheckpointError(
                f"{self.path(name)} cannot be moved to {self.path(target)}: check the write "
                "permissions, then try again"
            )

    def copy_to(self, name: str, other: "Folder", target: str) -> None:
        """Copy a file or a folder, also to another file system."""
        path, target_path = self._path(name), other._path(target)
        if not copy(self.spark, self._files, path, other._files, target_path):
            raise CheckpointError(
                f"{self.path(name)} cannot be copied to {other.path(target)}: check the write "
                "permissions and the free space, then try again"
            )

    def _real(self, path: Any) -> Any:
        """The path without symbolic links: Hadoop's local file system treats a link as a file."""
        if path.toUri().getScheme() != "file":
            return path
        return hadoop_path(self.spark, f"file:{Path(path.toUri().getPath()).resolve()}")

    def _path(self, name: str) -> Any:
        return hadoop_path(self.spark, self._root, name)


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in _NO_FOLDER_FSYNC:
            raise
    finally:
        os.close(number)


def _files(files: Any, prefix: str) -> Iterator[tuple[str, int]]:
    while files.hasNext():
        entry = files.next()
        yield entry.getPath().toUri().getPath().removeprefix(prefix), entry.getLen()
