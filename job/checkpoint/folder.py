"""A folder on any file system that Hadoop reaches: local, hdfs:, s3a:, abfss:, gs:."""

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from job.errors import CheckpointError

_READS_MAX = 3


class Folder:
    """Paths are relative to its root, with slashes."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        jvm = spark._jvm
        assert jvm is not None
        self._jvm = jvm
        self._hadoop = jvm.org.apache.hadoop
        if not urlsplit(location).scheme:  # else Hadoop's own settings would say where it is
            location = f"file:{Path(location).absolute()}"
        path = self._hadoop.fs.Path(location)
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self._files = path.getFileSystem(configuration)
        # Made absolute here, so that a later look at the log says where it was.
        self._root = self._real(self._files.makeQualified(path))
        # Two jobs that begin at once write the same files: neither may rename the other's away.
        self._writer = uuid.uuid4().hex[:8]

    @property
    def root(self) -> str:
        return str(self._root.toString())

    @property
    def scheme(self) -> str:
        """Of its file system: file, hdfs, s3a …"""
        return str(self._root.toUri().getScheme())

    def path(self, name: str) -> str:
        return str(self._path(name).toString())

    def exists(self, name: str) -> bool:
        return bool(self._files.exists(self._path(name)))

    def names(self, name: str = "") -> list[str]:
        """What is right below `name`; empty where there is no such folder."""
        path = self._path(name) if name else self._root
        if not self._files.exists(path):
            return []
        return sorted(entry.getPath().getName() for entry in self._files.listStatus(path))

    def sizes(self, name: str = "") -> dict[str, int]:
        """Bytes of each file at any depth below `name`, by its path relative to it."""
        path = self._path(name) if name else self._root
        if not self._files.exists(path):
            return {}
        prefix = f"{path.toUri().getPath()}/"
        return dict(sorted(_files(self._files.listFiles(path, True), prefix)))

    def read(self, name: str) -> dict[str, Any] | None:
        """The JSON document of that name; None where there is none."""
        text = self.text(name)
        if text is None:
            return None
        try:
            document: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise CheckpointError(f"{self.path(name)} is damaged: {error}") from error
        return document

    def text(self, name: str) -> str | None:
        """None where there is no such file.

        HDFS and S3 fail a reader whose file is replaced meanwhile, as another job's lease is.
        """
        for _ in range(_READS_MAX - 1):
            with suppress(Py4JJavaError):
                return self._text(self._path(name))
        return self._text(self._path(name))

    def _text(self, path: Any) -> str | None:
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """All of it or nothing: a crash in between leaves the old file."""
        path = self._path(name)
        content = bytearray(json.dumps(document, indent=2).encode())
        if self.scheme == "s3a":
            # It appears when it is closed, whole. To rename one is to copy it, and for a moment
            # there would be none.
            stream = self._files.create(path, True)
            stream.write(content)
            stream.close()
            return
        if self.scheme == "file":
            self._replace(Path(path.toUri().getPath()), content)
            return
        temporary = self._hadoop.fs.Path(path.getParent(), self._temporary(path.getName()))
        stream = self._files.create(temporary, True)
        try:
            stream.write(content)
            stream.hsync()
        finally:
            stream.close()
        context = self._hadoop.fs.FileContext.getFileContext(
            self._root.toUri(), self._files.getConf()
        )
        overwrite = self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename")
        options = self._jvm.java.lang.reflect.Array.newInstance(overwrite, 1)
        options[0] = overwrite.getField("OVERWRITE").get(None)
        context.rename(temporary, path, options)

    def _replace(self, file: Path, content: bytearray) -> None:
        """Without Hadoop's checksum: that is a second file, renamed after the first, and a kill in
        between leaves two that do not fit together, which nobody can read."""
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(self._temporary(file.name))
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        temporary.replace(file)

    def _temporary(self, name: str) -> str:
        return f".{name}.{self._writer}.tmp"

    def remove(self, name: str) -> None:
        """Harmless where there is no such file."""
        self._files.delete(self._path(name), False)

    def move(self, name: str, target: str) -> None:
        """Within the folder; the folders of `target` are made."""
        destination = self._path(target)
        self._files.mkdirs(destination.getParent())
        if not self._files.rename(self._path(name), destination):
            raise CheckpointError(
                f"{self.path(name)} cannot be moved to {self.path(target)}: look at the rights to "
                "write there, then try again"
            )

    def copy_to(self, name: str, other: "Folder", target: str) -> None:
        """A file or a folder, to another file system perhaps."""
        if not self._hadoop.fs.FileUtil.copy(
            self._files,
            self._path(name),
            other._files,
            other._path(target),
            False,
            self._files.getConf(),
        ):
            raise CheckpointError(f"{self.path(name)} cannot be copied to {other.path(target)}")

    def _real(self, path: Any) -> Any:
        """Without symbolic links: the local file system takes one to a folder for a file."""
        if path.toUri().getScheme() != "file":
            return path
        return self._hadoop.fs.Path(f"file:{Path(path.toUri().getPath()).resolve()}")

    def _path(self, name: str) -> Any:
        return self._hadoop.fs.Path(self._root, name)


def _files(found: Any, prefix: str) -> Iterator[tuple[str, int]]:
    while found.hasNext():
        entry = found.next()
        yield entry.getPath().toUri().getPath().removeprefix(prefix), entry.getLen()
