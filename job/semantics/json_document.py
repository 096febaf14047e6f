"""Parses the JSON value of a record as Jackson does, with the limits of StreamReadConstraints.

Numbers keep their text, objects keep all members in order. Text that Jackson refuses is no
document, also if a number, a name or the nesting exceeds a limit.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from job.evaluation.java_numbers import double_text
from job.join_spec.record_rules import BRACES_MEET, JSON_WHITESPACE

NUMBER_DIGITS_MAX = 1_000
NAME_CHARS_MAX = 50_000
"""In UTF-16 units."""
DEPTH_MAX = 1_000

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_NUMBER = re.compile(r"-?([0-9]+)(?:\.([0-9]+))?(?:[eE][+-]?([0-9]+))?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_FRAMES_PER_LEVEL = 4


class Number(str):
    """Text of a number: Spark parses it by the declared type."""

    __slots__ = ()


class Members(tuple[tuple[str, "Json"], ...]):
    """The members of an object. A name may occur more than once."""

    __slots__ = ()


Json: TypeAlias = bool | str | Number | list["Json"] | Members | None


def document(value: str | bytes) -> Members | None:
    """The JSON object in `value`. None: it is not one JSON object.

    from_json reads only the first document; the job checks later text only if two braces are
    adjacent.
    """
    try:
        text = value.decode() if isinstance(value, bytes) else value
        depth = _depth(text)
        if depth > DEPTH_MAX:
            return None
        start = len(text) - len(text.lstrip(JSON_WHITESPACE))
        with room_for(depth):
            document, end = _DECODER.raw_decode(text, start)
    except ValueError:
        return None
    rest = text[end:].strip(JSON_WHITESPACE)
    if rest and (not rest.endswith("}") or any(pair in text for pair in BRACES_MEET)):
        return None
    return document if isinstance(document, Members) else None


def has_duplicate_name(value: Json) -> bool:
    """Whether an object in `value` has two members of one name, which try_parse_json refuses."""
    waiting: list[Json] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Members):
            if len({name for name, _ in item}) < len(item):
                return True
            waiting += [member for _, member in item]
        elif isinstance(item, list):
            waiting += item
    return False


def compact_text(value: Json, number_text: Callable[[Number], str] = str) -> str:
    """`value` as JSON without blanks. `number_text`: formats a number."""
    if isinstance(value, Members):
        members = (f"{string_text(name)}:{compact_text(v, number_text)}" for name, v in value)
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(compact_text(element, number_text) for element in value) + "]"
    if isinstance(value, Number):
        return number_text(value)
    return string_text(value) if isinstance(value, str) else json.dumps(value)


def copied_number(number: Number) -> str:
    """Text of a number in an object or a list that Jackson copies: an integer or a double."""
    if not set(number) & set(".eE"):
        return written_number(number)
    text = double_text(float(number))
    return f'"{text}"' if math.isinf(float(number)) else text


def written_number(number: Number) -> str:
    """Original text of a number; but Jackson's integers have no negative zero."""
    return "0" if number == "-0" else str(number)


def string_text(text: str) -> str:
    """JSON string in Jackson's format: control characters in upper-case hexadecimal."""
    body = json.dumps(text, ensure_ascii=False)
    body = re.sub(r"\\u[0-9a-f]{4}", lambda match: rf"\u{match[0][2:].upper()}", body)
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04X}", body)


def without_lone_surrogates(text: str) -> str:
    """Text as Java encodes it in UTF-8: an unpaired surrogate becomes a question mark."""
    return _SURROGATE.sub("?", text)


def any_json(text: str) -> Json:
    """Parses JSON without Jackson's limits; ValueError for other text."""
    with room_for(_depth(text)):
        value: Json = _UNLIMITED.decode(text)
        return value


@contextmanager
def room_for(depth: int) -> Iterator[None]:
    """Raises the recursion limit of Python for `depth` levels of JSON."""
    before = sys.getrecursionlimit()
    if depth * _FRAMES_PER_LEVEL < before // 2:
        yield
        return
    sys.setrecursionlimit(before + depth * _FRAMES_PER_LEVEL)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _depth(text: str) -> int:
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", _STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _number(text: str) -> Number:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is not a JSON number")
    whole, fraction, exponent = (part or "" for part in match.groups())
    # Jackson does not count a zero before the point or the exponent.
    uncounted = whole == "0" and bool(fraction) != bool(exponent)
    if len(whole) - uncounted + len(fraction) + len(exponent) > NUMBER_DIGITS_MAX:
        raise ValueError("a number with too many digits")
    return Number(text)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _members(pairs: list[tuple[str, Json]]) -> Members:
    for name, _ in pairs:
        if len(name) > NAME_CHARS_MAX // 2 and _utf16_units(name) > NAME_CHARS_MAX:
            raise ValueError("a member's name is too long")
    return Members(pairs)


def _utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


_DECODER = json.JSONDecoder(
    parse_int=_number,
    parse_float=_number,
    parse_constant=_no_constant,
    object_pairs_hook=_members,
)
_UNLIMITED = json.JSONDecoder(
    parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=Members
)
