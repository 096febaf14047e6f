"""A checkpoint on a local path, read without a JVM."""

import re
from pathlib import Path

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.folder import Folder

_LOCATION = re.compile(r"(?:file:(?://[^/]*)?)?(?P<path>/.*|[^:]*)", re.DOTALL)


class LocalFolder(Folder):
    """The files of a local folder. Reads only: methods that write need a session."""

    def __init__(self, path: Path) -> None:
        self._local = path.resolve()

    @property
    def root(self) -> str:
        return f"file:{self._local}"

    def path(self, name: str) -> str:
        return f"file:{self._local / name}"

    def exists(self, name: str) -> bool:
        return (self._local / name).exists()

    def names(self, name: str = "") -> list[str]:
        folder = self._local / name
        return sorted(each.name for each in folder.iterdir()) if folder.exists() else []

    def text(self, name: str) -> str | None:
        try:
            return (self._local / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None


class LocalCheckpoint(Checkpoint):
    """For reading only."""

    def __init__(self, path: Path) -> None:
        self.folder = LocalFolder(path)


def local_path(location: str) -> Path | None:
    """The folder of a location. None: another file system contains it."""
    found = _LOCATION.fullmatch(location)
    return None if found is None else Path(found["path"])
