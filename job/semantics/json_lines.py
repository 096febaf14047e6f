"""JSON text whose numbers and members are kept as they are written."""

import json
import re
from typing import TypeAlias

_SURROGATE = re.compile("[\ud800-\udfff]")


class Number(str):
    """Text of a number: Spark parses it by the declared type."""

    __slots__ = ()


class Members(tuple[tuple[str, "Json"], ...]):
    """The members of an object. A name may occur more than once."""

    __slots__ = ()


Json: TypeAlias = bool | str | Number | list["Json"] | Members | None


def any_json(text: str) -> Json:
    """ValueError for text that is no JSON, or nested deeper than Python can read."""
    try:
        value: Json = _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("is nested too deep") from error
    return value


def compact_text(value: Json) -> str:
    """`value` as JSON without blanks."""
    if isinstance(value, Members):
        members = (f"{json.dumps(name)}:{compact_text(member)}" for name, member in value)
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(compact_text(element) for element in value) + "]"
    if isinstance(value, Number):
        return str(value)
    return json.dumps(value)


def valid_text(text: str) -> str:
    """Text as Java encodes it in UTF-8: an unpaired surrogate becomes a question mark."""
    return _SURROGATE.sub("?", text)


_DECODER = json.JSONDecoder(
    parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=Members
)
