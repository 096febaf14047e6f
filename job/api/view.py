"""Bases of the response and request bodies."""

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """A part of a response. Null means unknown, never zero. Field docstrings go to OpenAPI."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class RequestBody(View):
    """A request body; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")
