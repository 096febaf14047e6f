"""The documents of checkpoint.py, and how each document is read and written."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from pydantic import Field, ValidationError

from job.document import Document
from job.errors import CheckpointError
from job.protocol.reports import CommandReport
from job.protocol.status import QueryState
from job.spec.sides import Side
from job.spec.start_positions import SideStartPositions

NEVER_OWNED = ""
"""`owner` of a query that has not owned its name. It is not written."""
_AnyDocument = TypeVar("_AnyDocument", bound=Document)
_NEWER = "start the version of Streamjoin that wrote it, or a newer one"


class Fingerprint(Document):
    """Frozen settings of the query. They exist from its first start on."""

    file_name = "fingerprint.json"
    settings: dict[str, str]


class DesiredState(Document):
    file_name = "desired_state.json"
    state: QueryState


class Commands(Document):
    file_name = "commands.json"
    commands: list[CommandReport]
    """The last commands, oldest first."""


class Starts(Document):
    file_name = "starts.json"
    left: SideStartPositions
    right: SideStartPositions


class Topics(Document):
    file_name = "topics.json"
    topics: dict[str, str]
    """Kafka's id by topic."""


class Fence(Document):
    file_name = "fence.json"
    number: int


class ExactlyOnce(Document):
    file_name = "exactly_once.json"
    since: int
    """First batch delivered exactly once."""
    owner: str | None = Field(NEVER_OWNED, exclude_if=lambda owner: owner == NEVER_OWNED)
    """Id of the query that owns its name in the commit topic. None: it has released the name."""


class Replaces(Document):
    file_name = "replaces.json"
    query_ids: list[str]
    any: bool
    """Whether the next start replaces any query of the name."""


@dataclass(frozen=True)
class SkippedRange:
    """Records of a partition that Kafka deleted before the query read them."""

    side: Side
    topic: str
    partition: int
    first_offset: int
    next_offset: int
    """Offset after the last one that is skipped."""
    batch_id: int
    """Last batch before the skipped records."""
    skipped_at: datetime


class SkippedRecords(Document):
    file_name = "skipped.json"
    ranges: list[SkippedRange]
    """In the order in which they were skipped."""


class Documents(Protocol):
    """A folder of documents: folder.Folder, or a model of it in tests."""

    @property
    def root(self) -> str: ...

    def names(self, name: str) -> list[str]: ...

    def text(self, name: str) -> str | None: ...

    def write(self, name: str, text: str) -> None: ...

    def remove(self, name: str) -> None: ...


def write_document(folder: Documents, document: Document, name: str | None = None) -> None:
    """`name`: of a file among several of this kind."""
    folder.write(name or document.file_name, document.model_dump_json(indent=2))


def read_document(
    folder: Documents, kind: type[_AnyDocument], name: str | None = None
) -> _AnyDocument | None:
    """None: the file does not exist. Raises CheckpointError for a document that this version
    cannot read. `name`: as for `write_document`."""
    name = name or kind.file_name
    text = folder.text(name)
    if text is None:
        return None
    file = f"{name} in {folder.root}"
    try:
        document = kind.model_validate_json(text)
    except ValidationError as error:
        raise CheckpointError(f"{file} {_problem(error, kind)}") from error
    for field, info in kind.model_fields.items():
        may_be_missing = info.default is None or info.exclude_if is not None
        if field not in document.model_fields_set and not may_be_missing:
            raise CheckpointError(f"{file} is damaged: `{field}` is required. {kind.if_damaged}")
    return document


def _problem(error: ValidationError, kind: type[Document]) -> str:
    problems = {".".join(map(str, each["loc"])): each for each in error.errors()}
    wrong = problems.get("format")
    if wrong is not None and isinstance(wrong["input"], int):
        return (
            f"has format {wrong['input']}, and this version reads format "
            f"{wrong['ctx']['expected']}: {_NEWER}"
        )
    field, first = next(iter(problems.items()))
    if first["type"] == "extra_forbidden":
        return f"has the field `{field}`, which this version does not know: {_NEWER}"
    reason = f"`{field}`: {first['msg']}" if field else first["msg"]
    return f"is damaged: {reason}. {kind.if_damaged}"
