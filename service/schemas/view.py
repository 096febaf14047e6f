"""Base of the response bodies, and what several of them share."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Side = Literal["left", "right"]
SIDES: tuple[Side, ...] = ("left", "right")


class View(BaseModel):
    """A part of a response. Null means unknown, never zero. Field docstrings go to OpenAPI."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)
