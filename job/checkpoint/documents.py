"""The job's own JSON files in the checkpoint folder. Each contains the version of its format."""

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
    """The document. None: the file does not exist. CheckpointError for another format."""
    document = folder.read(name)
    if document is not None and (found := document.get("format")) != FORMAT:
        where = f"{name} in {folder.root} has"
        if found is None:
            raise CheckpointError(
                f"{where} no format, so Streamjoin has not written it, or it is damaged: restore a "
                "backup of the checkpoint"
            )
        raise CheckpointError(
            f"{where} format {found}, and this version reads format {FORMAT}: start the version of "
            "Streamjoin that wrote it, or a newer one"
        )
    return document
