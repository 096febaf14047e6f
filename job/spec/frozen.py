"""The base of all models of the spec."""

from collections.abc import Iterator
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

# Type of the errors of `contradictions` in pydantic's errors.
CONTRADICTION = "contradiction"


class Frozen(BaseModel):
    # Without hide_input_in_errors pydantic quotes the input, which may be a password.
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=True, hide_input_in_errors=True
    )

    def contradictions(self) -> Iterator[str]:
        """Problems of fields that are each valid. Each one is reported."""
        yield from ()

    @model_validator(mode="after")
    def _has_no_contradiction(self, info: ValidationInfo) -> Self:
        name = type(self).__name__
        # The context has the names of the models whose contradictions are already reported.
        if name in (info.context or ()):
            return self
        # pydantic ends at the first ValueError of a model; this error has them all.
        found = [
            InitErrorDetails(
                type=PydanticCustomError(
                    CONTRADICTION, "{message}", {"message": message, "model": name}
                ),
                input=None,
            )
            for message in self.contradictions()
        ]
        if found:
            raise ValidationError.from_exception_data(name, found)
        return self
