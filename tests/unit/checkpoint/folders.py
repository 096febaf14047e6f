"""The files of checkpoints, in memory."""

import json
from collections.abc import Callable
from typing import Any

from job.checkpoint.checkpoint import Checkpoint

ROOT = "file:/c"


class DocumentFolder:
    root = "file:/checkpoint"

    def __init__(self, documents: dict[str, Any] | None = None) -> None:
        self.documents: dict[str, Any] = documents or {}

    def text(self, name: str) -> str | None:
        document = self.documents.get(name)
        return None if document is None else json.dumps(document)

    def write(self, name: str, text: str) -> None:
        self.documents[name] = json.loads(text)

    def remove(self, name: str) -> None:
        self.documents.pop(name, None)


class CrashError(Exception):
    """The process was killed."""


class Disk:
    """Checkpoint folders. A write or removal crashes before or after it takes effect."""

    def __init__(self) -> None:
        self.files: dict[str, Any] = {}
        self.crash_at: tuple[int, str] | None = None
        self.writes = 0
        self.suspended_at: int | None = None
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens while the process is suspended before this write."""
        self.removed: str | None = None
        """A file that is in the folder and is removed before it is read."""

    def change(self, apply: Callable[[], object]) -> None:
        self.writes += 1
        if self.writes == self.suspended_at:
            self.meanwhile()
        if self.crash_at == (self.writes, "before"):
            raise CrashError
        apply()
        if self.crash_at == (self.writes, "after"):
            raise CrashError


class Folder:
    """job/checkpoint/folder.py, in memory."""

    scheme = "memory"

    def __init__(self, disk: Disk, root: str) -> None:
        self.root, self.spark, self._disk = root, None, disk

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def text(self, name: str) -> str | None:
        path = self.path(name)
        content = None if path == self._disk.removed else self._disk.files.get(path)
        return content if content is None or isinstance(content, str) else json.dumps(content)

    def exists(self, name: str) -> bool:
        return any(file.startswith(self.path(name)) for file in self._disk.files)

    def names(self, name: str) -> list[str]:
        start = self.path(name) + "/"
        return [file.removeprefix(start) for file in self._disk.files if file.startswith(start)]

    def sizes(self, name: str) -> dict[str, int]:
        return {file: len(self.text(f"{name}/{file}") or "") for file in self.names(name)}

    def write(self, name: str, text: str) -> None:
        content = json.loads(text) if name.endswith(".json") else text
        self._disk.change(lambda: self._disk.files.update({self.path(name): content}))

    def move(self, name: str, target: str) -> None:
        files, old, new = self._disk.files, self.path(name), self.path(target)
        paths = [path for path in files if path == old or path.startswith(f"{old}/")]

        def rename() -> None:
            files.update({path.replace(old, new, 1): files.pop(path) for path in paths})

        self._disk.change(rename)

    def remove(self, name: str) -> None:
        self._disk.change(lambda: self._disk.files.pop(self.path(name), None))


def checkpoint_with(files: dict[str, Any]) -> tuple[Disk, Checkpoint]:
    """A checkpoint with these files, by their names in its folder, and its disk."""
    disk = Disk()
    disk.files = {f"{ROOT}/{name}": content for name, content in files.items()}
    checkpoint = object.__new__(Checkpoint)
    folder: Any = Folder(disk, ROOT)
    checkpoint.folder = folder
    return disk, checkpoint
