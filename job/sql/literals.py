"""Rewrites string literals and comments of Spark SQL so that Spark and sqlglot read the same.

Spark 4 reads `''` inside a literal as one quote, joins adjacent literals, and has raw literals
(r'...') and more escapes than sqlglot reads. sqlglot reads `'O''Brien'` as two literals.
"""

import re

_TOKEN = re.compile(
    r"""
      (?P<literal>
          (?<!\w)[rR](?:'[^']*'|"[^"]*")
        | '(?:[^'\\]|\\.|'')*'
        | "(?:[^"\\]|\\.|"")*"
      )
    | (?P<name>`(?:[^`]|``)*`)
    | (?P<comment>--(?:\\\n|[^\r\n])*)
    | (?P<block>/\*)
    | (?P<open>['"`])
    | (?P<word>\w+)
    | (?P<space>\s+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = r"""
      \\u(?P<short>[0-9a-fA-F]{4})
    | \\U(?P<long>[0-9a-fA-F]{8})
    | \\(?P<octal>[01][0-7]{2})
    | \\(?P<char>.)
"""
_ESCAPES = {
    quote: re.compile(rf"{_ESCAPE} | {quote}(?P<quote>{quote})", re.VERBOSE | re.DOTALL)
    for quote in "'\""
}
# LIKE interprets \% and \_.
_CHARACTERS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_CHARACTERS |= {"%": "\\%", "_": "\\_"}


def canonical(text: str) -> str:
    """`text` without comments, each literal as `quoted` writes it, adjacent literals joined.

    Raises ValueError for a literal, a quoted name or a comment that is not closed.
    """
    parts: list[str] = []
    literal: str | None = None  # value of the last literals; an adjacent literal extends it
    spaces, end = "", 0
    while token := _TOKEN.match(text, end):
        kind, written, end = token.lastgroup, token.group(), token.end()
        if kind == "block":
            end = _end_of_comment(text, end)
        elif kind == "open":
            raise ValueError(f"has an unmatched {written}")
        if kind in {"comment", "block", "space"}:
            spaces += written if kind == "space" else " "
        elif kind == "literal":
            if literal is None:
                parts.append(spaces)
                literal = ""
            literal += value_of(written)
            spaces = ""
        else:
            if literal is not None:
                parts.append(quoted(literal))
            parts += [spaces, written]
            literal, spaces = None, ""
    return "".join([*parts, "" if literal is None else quoted(literal), spaces])


def quoted(value: str) -> str:
    """`value` as a literal with the same meaning in Spark and sqlglot."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def value_of(literal: str) -> str:
    """The value of one literal, e.g. O'Brien for `'O''Brien'`."""
    if literal[0] in "rR":
        return literal[2:-1]
    value = _ESCAPES[literal[0]].sub(_character, literal[1:-1])
    if not re.search("[\ud800-\udfff]", value):
        return value
    try:  # \ud83d\ude00 is a surrogate pair: one character
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError(f"has one half of a surrogate pair in {literal}: write both") from None


def _character(escape: re.Match[str]) -> str:
    digits = escape["short"] or escape["long"]
    if digits:
        code = int(digits, 16)
        if code > 0x10FFFF:
            raise ValueError(f"has {escape.group()}, which is not a Unicode character")
        return chr(code)
    if escape["octal"]:
        return chr(int(escape["octal"], 8))
    return escape["quote"] or _CHARACTERS.get(escape["char"], escape["char"])


def _end_of_comment(text: str, start: int) -> int:
    """Index after the `*/` that closes a comment opened before `start`. Comments nest."""
    depth, end = 1, start
    while depth:
        mark = re.compile(r"/\*|\*/").search(text, end)
        if mark is None:
            raise ValueError("has a comment that is not closed: write */")
        depth += 1 if mark.group() == "/*" else -1
        end = mark.end()
    return end
