"""Spark's grammar of types and of the columns of a schema.

sqlglot also parses the types of other databases, and renders each as a type of Spark: INT8 becomes
TINYINT. So each text is checked by this grammar before sqlglot parses it.
"""

import re
from collections.abc import Callable

_TOKEN = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\w+|[<>(),:]|\s+|.", re.DOTALL)
_NUMBER_LITERAL = re.compile(r"\d+(?:e\d+)?(?:[ldfsy]|bd)?", re.IGNORECASE)

_PLAIN = {
    "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT",
    "REAL", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP",
}  # fmt: skip
_DECIMALS = {"DECIMAL", "DEC", "NUMERIC"}
_SPANS = {"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"}

# Types of Spark that a spec may not use, and their replacements.
_UNSUPPORTED = {
    "TIMESTAMP_LTZ": "TIMESTAMP", "TIMESTAMP_NTZ": "TIMESTAMP", "TIME": "STRING", "CHAR": "STRING",
    "CHARACTER": "STRING", "VARCHAR": "STRING", "VARIANT": "STRING", "VOID": "STRING",
    "GEOMETRY": "STRING", "GEOGRAPHY": "STRING",
}  # fmt: skip
# Types of other databases, and their replacements.
_FOREIGN = {
    "TEXT": "STRING", "NVARCHAR": "STRING", "UUID": "STRING", "JSON": "STRING", "BOOL": "BOOLEAN",
    "INT1": "TINYINT", "INT2": "SMALLINT", "INT4": "INT", "INT8": "BIGINT", "INT32": "INT",
    "INT64": "BIGINT", "FLOAT4": "FLOAT", "FLOAT8": "DOUBLE", "FLOAT32": "FLOAT",
    "FLOAT64": "DOUBLE", "NUMBER": "DECIMAL(10, 2)", "DATETIME": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP", "BLOB": "BINARY", "BYTEA": "BINARY", "VARBINARY": "BINARY",
}  # fmt: skip
_SUPPORTED = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), STRING, BINARY, DATE, "
    "TIMESTAMP, ARRAY<…>, MAP<…, …> or STRUCT<name: type>"
)


def check_type(text: str) -> None:
    """Raises ValueError if `text` is not a type in Spark's grammar, or one that a spec may not use.

    `text`: in the form of `literals.canonical`, also for `check_columns`.
    """
    reader = _Reader(text)
    reader.type()
    reader.end()


def check_columns(text: str) -> str:
    """As `check_type`, for `name type, name type`. Returns the text with names in backquotes."""
    reader = _Reader(text)
    reader.listed(reader.column)
    reader.end()
    return reader.with_quoted_names()


class _Reader:
    """Recursive-descent parser of one text."""

    def __init__(self, text: str) -> None:
        self._tokens = [token for token in _TOKEN.findall(text) if not token.isspace()]
        self._at = 0
        self._names: set[int] = set()

    @property
    def _ahead(self) -> str:
        """The next token; empty at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, wanted: str) -> bool:
        is_next = self._ahead.upper() == wanted
        self._at += is_next
        return is_next

    def _next(self) -> str:
        token = self._ahead
        self._at += 1
        return token

    def end(self) -> None:
        """Raises ValueError if text remains."""
        if not self._ahead:
            return
        before, rest = self._tokens[self._at - 1], self._ahead
        if rest == "[":
            raise ValueError(f"{before}[] is not a type of Spark: write ARRAY<{before}>")
        if rest.isidentifier():
            raise ValueError(f"{before} {rest} is not a type of Spark: remove {rest}")
        raise _broken(f"remove {rest}")

    def with_quoted_names(self) -> str:
        return " ".join(
            f"`{token}`" if at in self._names else token for at, token in enumerate(self._tokens)
        )

    def listed(self, read: Callable[[], None]) -> None:
        read()
        while self._take(","):
            read()

    def column(self) -> None:
        name = self._name()
        self._take(":")
        if not self._ahead or self._ahead == ",":
            raise _broken(f"{name} has no type")
        self.type()
        if self._take("NOT") and not self._take("NULL"):
            raise _broken(f"NOT is followed by {self._shown()}")
        if self._take("COMMENT") and not self._next().startswith("'"):
            raise _broken("COMMENT has no text in quotes")

    def _name(self) -> str:
        name = self._next()
        if name == "``":
            raise ValueError("`` is not a name that Spark can resolve: rename it")
        if name.startswith("`"):
            return name
        if name in {"", ">", ","}:
            raise _broken("it has no columns, or no column after a comma")
        if not re.fullmatch(r"\w+", name, re.ASCII) or _NUMBER_LITERAL.fullmatch(name):
            raise _broken(f"{name} is not a name: write `{name}` with backquotes, or rename it")
        self._names.add(self._at - 1)
        return name

    def type(self) -> None:
        name = self._next().upper()
        if name == "ARRAY":
            self._inside(name, "ARRAY<INT>", self.type)
        elif name == "MAP":
            self._inside(name, "MAP<STRING, INT>", self._key_and_value)
        elif name == "STRUCT":
            self._inside(name, "STRUCT<city: STRING>", lambda: self.listed(self.column))
        elif name in _DECIMALS:
            self._digits(name)
        elif name == "INTERVAL":
            self._span()
        elif name not in _PLAIN:
            raise ValueError(_unknown(name))
        elif self._ahead == "(":
            raise ValueError(f"{name}(…) is not a type of Spark: write {name}")
        elif name == "STRING" and self._ahead.upper() == "COLLATE":
            raise ValueError("STRING COLLATE is not a type that a spec may use: write STRING")
        elif name == "TIMESTAMP" and self._ahead.upper() in {"WITH", "WITHOUT"}:
            zone = f"{name} {self._ahead.upper()} …"
            raise ValueError(f"{zone} is not a type that a spec may use: write {name}")

    def _key_and_value(self) -> None:
        self.type()
        self._expect(",", "MAP<STRING, INT>")
        self.type()

    def _inside(self, name: str, example: str, read: Callable[[], None]) -> None:
        if self._ahead != "<":
            raise ValueError(f"{name} has no type of its elements: write e.g. {example}")
        self._next()
        if self._ahead == ">":
            what = "fields" if name == "STRUCT" else "type of its elements"
            raise ValueError(f"{name}<> has no {what}: write e.g. {example}")
        read()
        self._expect(">", example)

    def _digits(self, name: str) -> None:
        if not self._take("("):
            return
        example = f"{name}(10, 2)"
        self.listed(lambda: self._digit(example))
        self._expect(")", example)

    def _digit(self, example: str) -> None:
        if not re.fullmatch("[0-9]+", self._next()):
            raise ValueError(f"{example.partition('(')[0]} has no digits: write e.g. {example}")

    def _span(self) -> None:
        example = "INTERVAL DAY TO SECOND"
        for _ in range(2):
            if self._next().upper() not in _SPANS:
                raise ValueError(f"INTERVAL is not a type that a spec may use: write {example}")
            if not self._take("TO"):
                return
        raise ValueError(f"INTERVAL has TO twice: write e.g. {example}")

    def _expect(self, wanted: str, example: str) -> None:
        if not self._take(wanted):
            raise _broken(f"expected `{wanted}`, found {self._shown()}; write e.g. {example}")

    def _shown(self) -> str:
        return self._ahead or "nothing"


def _broken(detail: str) -> ValueError:
    return ValueError(f"is not Spark DDL, e.g. `id BIGINT, at TIMESTAMP`: {detail}")


def _unknown(name: str) -> str:
    if not name.isidentifier():
        return str(_broken(f"expected a type, found {name or 'nothing'}"))
    if name in _UNSUPPORTED:
        return f"{name} is not a type that a spec may use: write {_UNSUPPORTED[name]}"
    if name in _FOREIGN:
        return f"{name} is not a type of Spark: write {_FOREIGN[name]}"
    return f"{name} is not a type of Spark: write {_SUPPORTED}"
