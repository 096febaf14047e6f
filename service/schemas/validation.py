"""Body of POST /v1/validate."""

from pydantic import ConfigDict

from service.schemas.view import View


class SpecDocument(View):
    """A spec in a JSON body."""

    model_config = ConfigDict(extra="forbid")

    spec: str
    """The spec as YAML."""
