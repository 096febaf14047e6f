"""The values of a sample that can be keys or event times: columns, fields in them, record keys."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from job.proposal.columns import Table, parsed_json
from job.semantics.json_lines import Json, Members
from job.spec.value_format import Format, RecordKeyFormat
from job.sql.types import STRING, SqlType

RECORD_KEY = "record_key"
_OF_ENVELOPE = {"after", "op"}
"""Fields of each Debezium envelope."""
_TIMES_OF_ENVELOPE = {"source", "ts_ms", "ts_us", "ts_ns"}
_WORDS_MAX = 8
UNNAMED = re.compile(r"(column|text|word)_\d+")
"""Names of the fields of CSV and text, which have none."""
_NOT_IN_TEXT = "\ufffd"
"""What a byte that is not UTF-8 is read as."""


@dataclass(frozen=True)
class Field:
    """A column, or a field in a column."""

    parts: tuple[str, ...]
    """Names from the column to the field."""
    type: SqlType
    values: list[Json]
    """The value of each row. None: the row has none."""
    in_envelope: bool = False
    """Next to the row of a Debezium envelope: no part of the row."""
    expression: str | None = None
    """SQL of a part of a text. None: the field itself."""

    def sql(self, quoted: Mapping[str, str]) -> str:
        return self.expression or ".".join(quoted[part] for part in self.parts)


def fields_of(table: Table) -> list[Field]:
    """All fields that are no STRUCT, those of a row in an envelope without the row before."""
    if table.format is Format.TEXT:
        return list(_parts_of_text(table))
    columns = [
        Field((name,), kind, [row.get(name) for row in table.rows])
        for name, kind in table.columns.items()
    ]
    return list(_fields(columns))


def _parts_of_text(table: Table) -> Iterator[Field]:
    """The text, and the words that all texts have, if there are several."""
    yield Field(("text_0",), STRING, table.values("value"), expression="value")
    texts = [str(value).split(" ") for value in table.values("value")]
    count = min((len(words_) for words_ in texts), default=0)
    for n in range(min(count, _WORDS_MAX) if count > 1 else 0):
        values: list[Json] = [words_[n] for words_ in texts]
        yield Field((f"word_{n}",), STRING, values, expression=f"split(value, ' ')[{n}]")


def _fields(fields: Sequence[Field]) -> Iterator[Field]:
    is_envelope = {field.parts[-1] for field in fields} >= _OF_ENVELOPE
    for field in fields:
        name = field.parts[-1]
        inner: Sequence[Field] = _members(field) if field.type.name == "STRUCT" else [field]
        if is_envelope and name in _TIMES_OF_ENVELOPE:
            yield from (
                Field(each.parts, each.type, each.values, in_envelope=True)
                for each in inner
                if each.parts[-1] in _TIMES_OF_ENVELOPE
            )
        elif not is_envelope or name == "after":
            yield from _fields(inner) if field.type.name == "STRUCT" else inner


def _members(field: Field) -> list[Field]:
    objects = [dict(value) if isinstance(value, Members) else {} for value in field.values]
    return [
        Field((*field.parts, name), kind, [each.get(name) for each in objects])
        for name, kind in field.type.fields
    ]


def names_of(table: Table) -> Iterator[str]:
    """Names of the columns and of all fields in them."""
    yield from table.columns
    for field in (*fields_of(table), *record_key_fields(table)):
        yield from field.parts


def is_unopened_envelope(table: Table) -> bool:
    """Whether the values are Debezium's envelopes in a format whose envelopes no spec opens."""
    return any(field.in_envelope for field in fields_of(table))


def record_key_fields(table: Table) -> list[Field]:
    """The record key, or the fields in it. None, if no format reads all keys."""
    texts = [record.key for record in table.records]
    present = [text for text in texts if text is not None]
    if not present or not table.keys.are_read:
        return []
    if table.keys.format is RecordKeyFormat.STRING:
        is_text = all(text.isprintable() and _NOT_IN_TEXT not in text for text in present)
        return [Field((RECORD_KEY,), STRING, list(texts))] if is_text else []
    values = [None if text is None else parsed_json(text) for text in texts]
    whole = Field((RECORD_KEY,), table.keys.type, values)
    return list(_fields(_members(whole))) if whole.type.name == "STRUCT" else [whole]


def words(name: str) -> list[str]:
    """The words of a name in camelCase or snake_case, in lower case and in the singular."""
    found: list[str] = []
    for character, before in zip(name, " " + name, strict=False):
        if not character.isalnum():
            found.append("")
        elif not found or (character.isupper() and not before.isupper()):
            found.append(character)
        else:
            found[-1] += character
    return [_singular(word.casefold()) for word in found if word]


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    is_plural = word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3
    return word[:-1] if is_plural else word
