"""Bodies of the calls that take a spec."""

from pydantic import Field

from job.settings import STATE_PARTITIONS_MAX
from service.schemas.view import RequestBody


class SpecDocument(RequestBody):
    """A spec in a JSON body."""

    spec: str
    """The spec as YAML."""


class ChangeDocument(SpecDocument):
    """A changed spec in a JSON body."""

    state_partitions: int | None = Field(default=None, ge=1, le=STATE_PARTITIONS_MAX)
    """Number of state partitions of the new query. Null: as many as the old query has."""
