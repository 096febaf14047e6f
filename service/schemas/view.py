"""Base of the response bodies."""

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """A part of a response. Null means unknown, never zero. Field docstrings go to OpenAPI."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)
