"""The job's own JSON files in the checkpoint folder. Each contains the version of its format.

Format 0: files of earlier versions, without the field `format`. They are still read.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from job.errors import CheckpointError

FORMAT = 1
FINGERPRINT = "fingerprint.json"
"""Frozen settings of the query. They exist from its first start on."""


class Documents(Protocol):
    """A folder of JSON documents: folder.Folder, or a model of it in tests."""

    @property
    def root(self) -> str: ...

    def read(self, name: str) -> Mapping[str, Any] | None: ...

    def write(self, name: str, document: Mapping[str, Any]) -> None: ...

    def remove(self, name: str) -> None: ...


def write_document(folder: Documents, name: str, content: Mapping[str, Any]) -> None:
    folder.write(name, {"format": FORMAT, **content})


def read_document(folder: Documents, name: str) -> Mapping[str, Any] | None:
    """The document, also of format 0. None: the file does not exist.

    Raises CheckpointError for a format of a newer version.
    """
    document = folder.read(name)
    if document is not None and document.get("format", 0) not in {0, FORMAT}:
        raise CheckpointError(
            f"{name} in {folder.root} has format {document['format']}, and this version reads "
            f"formats up to {FORMAT}: start the version of Streamjoin that wrote it, or a newer one"
        )
    return document
