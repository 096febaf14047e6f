"""The base of all models of the spec."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    # Without hide_input_in_errors pydantic quotes the input, which may be a password.
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=True, hide_input_in_errors=True
    )
