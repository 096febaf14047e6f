"""Syntax of patterns: LIKE, datetime formats and regular expressions of Java.

An invalid constant pattern would fail with the first row.
"""

import re

from job.sql.arguments import ArgumentError

# DateTimeFormatterHelper: the maximum length of a run of each letter.
_LENGTHS = {
    **dict.fromkeys("GMLEQq", 4), **dict.fromkeys("dhHkKms", 2), **dict.fromkeys("XxZ", 5),
    "y": 6, "D": 3, "a": 1, "S": 9, "z": 4, "F": 1, "V": 2, "O": 4,
}  # fmt: skip
_NOT_PARSED = "EFQq"


def check_like(pattern: str) -> None:
    """A backslash must be followed by `_`, `%` or a backslash."""
    end = 0
    while (end := pattern.find("\\", end)) >= 0:
        if pattern[end + 1 : end + 2] not in {"_", "%", "\\"}:
            raise ArgumentError(
                f"LIKE {pattern!r} has a backslash that escapes nothing: write it twice"
            )
        end += 2


def check_datetime_format(pattern: str, *, parses: bool) -> None:
    """`parses`: True for to_date() and to_timestamp(), False for date_format()."""
    if pattern.count("'") % 2:
        raise ArgumentError(f"the format {pattern!r} has an unmatched quote")
    plain = re.sub(r"'[^']*'", " ", pattern)
    for run in re.finditer(r"([A-Za-z])\1*", plain):
        letter, length = run[1], len(run[0])
        most = _LENGTHS.get(letter)
        if most is None or (parses and letter in _NOT_PARSED):
            raise ArgumentError(
                f"the format {pattern!r} has {run[0]}, which Spark does not support: see "
                "https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html"
            )
        if length > most or (letter == "V" and length != most) or (letter, length) in _GAPS:
            raise ArgumentError(
                f"the format {pattern!r} has an invalid number of {letter}: {length}"
            )
    if re.search(r"[{}#]", plain) or not _is_balanced(plain):
        raise ArgumentError(f"the format {pattern!r} has {{, }}, # or an unmatched bracket")


_GAPS = {("O", 2), ("O", 3)}


def _is_balanced(plain: str) -> bool:
    depth = 0
    for character in plain:
        depth += (character == "[") - (character == "]")
        if depth < 0:
            return False
    return True


def check_regex(pattern: str) -> None:
    """Raises ArgumentError if java.util.regex.Pattern does not compile `pattern`."""
    try:
        _Regex(pattern).read()
    except ValueError as error:
        raise ArgumentError(f"the regular expression {pattern!r} {error}") from None


_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d+)(,(\d*))?\})[?+]?")
_CLASS_LETTERS = "dDhHsSvVwW"
_ESCAPED = re.compile(
    r"""[tnrfae]|0[0-7]{1,3}|x[0-9a-fA-F]{2}|x\{[0-9a-fA-F]{1,6}\}|u[0-9a-fA-F]{4}|c.
    |[dDhHsSvVwW]|[pP](?:[A-Za-z]|\{[^}]+\})|N\{[^}]+\}|[^A-Za-z0-9]""",
    re.VERBOSE | re.DOTALL,
)
_OUTSIDE_CLASS = re.compile(r"[AbBGRXzZ]|b\{g\}|[1-9]|k<(\w+)>|Q")
_GROUP = re.compile(
    r"\?(?::|>|=|!|<=|<!|<([A-Za-z][A-Za-z0-9]*)>|-?[idmsuxU]*(?:-[idmsuxU]*)?[:)])"
)


class _Regex:
    """Recursive-descent parser of Java's regular expressions. It builds no tree."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._names: set[str] = set()

    def read(self) -> None:
        self._alternatives()
        if self._at < len(self._text):
            raise ValueError("has an unmatched )")

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _alternatives(self) -> None:
        while (character := self._next()) and character != ")":
            if character in {"|", "^", "$"}:
                self._at += 1
            elif character in {"*", "+", "?"}:
                raise ValueError(f"has {character} without an expression before it")
            elif character == "{":
                raise ValueError("has { without an expression before it")
            else:
                self._atom(character)
            if character != "|":
                self._quantifier()

    def _atom(self, character: str) -> None:
        self._at += 1
        if character == "(":
            self._group()
        elif character == "[":
            self._class()
        elif character == "\\":
            self._escape(in_class=False)

    def _group(self) -> None:
        if self._next() == "?":
            opened = _GROUP.match(self._text, self._at)
            if opened is None:
                raise ValueError("has an invalid group after (?")
            self._at = opened.end()
            if opened[1]:
                if opened[1] in self._names:
                    raise ValueError(f"has two groups named {opened[1]}")
                self._names.add(opened[1])
            if opened.group().endswith(")"):
                return
        self._alternatives()
        if self._next() != ")":
            raise ValueError("has an unmatched (")
        self._at += 1

    def _quantifier(self) -> None:
        if self._next() not in {"*", "+", "?", "{"}:
            return
        quantifier = _QUANTIFIER.match(self._text, self._at)
        if quantifier is None:
            raise ValueError("has an invalid repetition after {: write \\\\{ for the character")
        if quantifier[3] and int(quantifier[3]) < int(quantifier[1]):
            raise ValueError(f"repeats from {quantifier[1]} to {quantifier[3]} times")
        self._at = quantifier.end()

    def _class(self) -> None:
        if self._next() == "^":
            self._at += 1
        first = True
        while (character := self._next()) != "]" or first:
            if not character:
                raise ValueError("has an unmatched [")
            self._at += 1
            low = self._class_member(character)
            first = False
            if low and self._next() == "-" and self._text[self._at + 1 : self._at + 2] not in {
                "]", "[", "",
            }:  # fmt: skip
                self._at += 2
                high = self._class_member(self._text[self._at - 1])
                if high and high < low:
                    raise ValueError(f"has the range {low}-{high}, which is empty")
        self._at += 1

    def _class_member(self, character: str) -> str:
        """Reads one member. Returns its character; empty if no range can begin with it."""
        if character == "[":
            self._class()
            return ""
        if character == "\\":
            start = self._at
            self._escape(in_class=True)
            escaped = self._text[start : self._at]
            return escaped if len(escaped) == 1 and not escaped.isalpha() else ""
        return "" if self._text.startswith("&&", self._at - 1) else character

    def _escape(self, *, in_class: bool) -> None:
        if self._next() == "Q":
            end = self._text.find("\\E", self._at)
            self._at = len(self._text) if end < 0 else end + 2
            return
        matched = None if in_class else _OUTSIDE_CLASS.match(self._text, self._at)
        if matched is not None and matched[1] and matched[1] not in self._names:
            raise ValueError(f"refers to an undefined group {matched[1]}")
        matched = matched or _ESCAPED.match(self._text, self._at)
        if matched is None:
            raise ValueError(f"has \\{self._next()}, which Java does not support")
        self._at = matched.end()
