"""The base of all models of the spec."""

from collections.abc import Iterator
from typing import NamedTuple, Self

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

# Type of the errors of `contradictions` in pydantic's errors.
CONTRADICTION = "contradiction"


class Contradiction(NamedTuple):
    message: str
    field: tuple[str, ...]
    """Path of the field below the model."""
    value: str


class Frozen(BaseModel):
    # Without hide_input_in_errors pydantic quotes the input, which may be a password.
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=True, hide_input_in_errors=True
    )

    def contradictions(self) -> Iterator[str | Contradiction]:
        """Problems of fields that are each valid. Each one is reported. Text is about the whole
        model."""
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
                loc=field,
                input=value,
            )
            for message, field, value in map(_with_field, self.contradictions())
        ]
        if found:
            raise ValidationError.from_exception_data(name, found)
        return self


def _with_field(each: str | Contradiction) -> tuple[str, tuple[str, ...], str | None]:
    return (each, (), None) if isinstance(each, str) else each
