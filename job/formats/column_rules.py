"""Rules for the columns that a format with schemas can contain, for Avro and Protobuf."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from job.sql.types import STRING, SqlType

Columns = Iterable[tuple[str, SqlType]]


@dataclass(frozen=True)
class ColumnRules:
    format: str
    """Name in messages."""
    name: re.Pattern[str]
    name_rule: str
    """Rule for names, in messages."""
    atomic_types: Collection[str]
    """Names of the SQL types without element types that the format has."""
    nests_collections: bool
    """Whether an element of an array, or a value of a map, can be an array or map."""
    names_taken: Callable[[str, SqlType], Collection[str]]
    """The names that a field takes in its record. No two fields can take the same name."""

    def problems(self, columns: Columns) -> Iterator[tuple[str, str]]:
        """Each problem as the name of a column, and a message."""
        columns = list(columns)
        for name, kind in columns:
            if not self.name.fullmatch(name):
                yield name, f"is not a name in {self.format}: {self.name_rule} {_RENAME}"
            for message in self._type_problems(kind):
                yield name, message
        for first, second in self._collisions(columns):
            message = (
                f"has the same name in {self.format} as {first}, because case and _ do not count: "
                f"rename one {_RENAME}"
            )
            yield second, message

    def _type_problems(self, kind: SqlType) -> Iterator[str]:
        if kind.name == "VOID":
            yield (
                f"is a bare NULL, which has no type in {self.format}: write e.g. "
                "cast(NULL AS STRING)"
            )
        elif kind.name == "STRUCT":
            yield from self._field_problems(kind)
        elif kind.is_atomic and kind.name not in self.atomic_types:
            yield f"is {kind}, which {self.format} does not have: write cast(… AS STRING)"
        if kind.name == "MAP" and kind.inside("key") != STRING:
            key = kind.inside("key")
            yield f"has keys of type {key}, and keys of a map in {self.format} are STRING"
        if kind.element is not None and kind.element.element and not self.nests_collections:
            yield (
                f"is {kind.name} of {kind.element.name}, which {self.format} does not have: put "
                "the inner one into a named_struct"
            )
        for _, inner in kind.fields:
            yield from self._type_problems(inner)

    def _field_problems(self, struct: SqlType) -> Iterator[str]:
        for name in dict.fromkeys(name for name, _ in struct.fields):
            if not self.name.fullmatch(name):
                yield (
                    f"has the field `{name}`, which is not a name in {self.format}: name it with "
                    f"named_struct; {self.name_rule}"
                )
        for first, second in self._collisions(struct.fields):
            if first == second:
                yield f"has several fields `{first}`: name them with named_struct"
            else:
                yield (
                    f"has the fields `{first}` and `{second}`, which are one name in "
                    f"{self.format}, because case and _ do not count: name them with named_struct"
                )

    def _collisions(self, fields: Columns) -> Iterator[tuple[str, str]]:
        """Names of a field and of a later field that takes the same name."""
        taken: dict[str, str] = {}
        for name, kind in fields:
            names = self.names_taken(name, kind)
            first = next((taken[each] for each in names if each in taken), None)
            if first is not None:
                yield first, name
            taken |= dict.fromkeys(names, name)


_RENAME = "(`output.columns` can rename a column)"
