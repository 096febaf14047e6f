"""The base of the job's JSON files in the checkpoint folder."""

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    file_name: ClassVar[str]
    """Name of the file, relative to the checkpoint folder."""
    if_damaged: ClassVar[str] = "Restore a backup (`streamjoin checkpoint restore`), or reset"
    """What a user can do about a file that cannot be read."""
    format: Literal[1] = 1
    """Version of the fields: a document with other fields has another format. A version of
    Streamjoin refuses a document of another format."""
