"""Settings of CSV values."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from job.spec.frozen import Frozen


def _single(character: str) -> str:
    is_control = character < " " and character != "\t"
    # Java's parser compares UTF-16 units.
    if len(character) != 1 or is_control or not character < "\ud800":
        raise ValueError("must be one character, e.g. ';', or a tab, which is \"\\t\" in YAML")
    return character


def _single_line(text: str) -> str:
    if any(character in text for character in "\0\r\n"):
        raise ValueError("must not contain a line break or the character 0")
    return text


Character = Annotated[str, AfterValidator(_single)]


class CsvSpec(Frozen):
    """Characters and texts of CSV values."""

    # A blank or a tab is a delimiter.
    model_config = ConfigDict(str_strip_whitespace=False)

    delimiter: Character = ","
    """Character between two fields."""
    quote: Character = '"'
    """Character around a field that contains delimiters or quotes."""
    escape: Character = '"'
    """Character before a quote that is part of a quoted field. The default is RFC 4180: a quote in
    a quoted field is written twice."""
    null_value: Annotated[str, Field(max_length=100), AfterValidator(_single_line)] = ""
    """Text of a null, e.g. `\\N`. A field without any character is null in each case."""

    def __str__(self) -> str:
        shown = ", ".join(f"{name} {value!r}" for name, value in self if value)
        return shown.replace("_", " ")

    def contradictions(self) -> Iterator[str]:
        if self.delimiter in {self.quote, self.escape, "\\"}:
            yield (
                f"has the delimiter {self.delimiter}, which must differ from quote, escape and the "
                "backslash: write e.g. `delimiter: ';'`"
            )
