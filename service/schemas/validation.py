"""Bodies of the calls that take a spec."""

from job.api.view import RequestBody


class SpecDocument(RequestBody):
    """A spec in a JSON body."""

    spec: str
    """The spec as YAML."""
