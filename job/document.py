"""The base of the job's JSON files in the checkpoint folder."""

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    file_name: ClassVar[str]
    """Name of the file, relative to the checkpoint folder."""
    format: Literal[1] = 1
    """Version of the fields. A version of Streamjoin refuses a document of another format."""
