"""Types of Spark SQL."""

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class SqlType:
    name: str
    precision: int = 0
    """Digits of a DECIMAL; 0 for other types."""
    scale: int = 0
    fields: tuple[tuple[str, "SqlType"], ...] = ()
    """`element` of an ARRAY, `key` and `value` of a MAP, or the fields of a STRUCT."""

    def __str__(self) -> str:
        """Spark DDL."""
        if self.name == "DECIMAL":
            return f"DECIMAL({self.precision},{self.scale})"
        if self.name == "STRUCT":
            return f"STRUCT<{', '.join(f'{_name(name)}: {kind}' for name, kind in self.fields)}>"
        if self.fields:
            return f"{self.name}<{', '.join(str(kind) for _, kind in self.fields)}>"
        return self.name

    @property
    def is_decimal(self) -> bool:
        return self.name == "DECIMAL"

    @property
    def is_atomic(self) -> bool:
        """Whether the type has no element types, and is not VOID."""
        return self.name not in {"ARRAY", "MAP", "STRUCT", "VOID"}

    @property
    def is_orderable(self) -> bool:
        """Whether Spark compares values of the type: it contains no MAP."""
        return self.name != "MAP" and all(kind.is_orderable for _, kind in self.fields)

    @property
    def element(self) -> "SqlType | None":
        """Type of the elements of an ARRAY or the values of a MAP. None: another type."""
        return self.fields[-1][1] if self.name in {"ARRAY", "MAP"} else None

    def holds(self, name: str) -> bool:
        return self.name == name or any(kind.holds(name) for _, kind in self.fields)

    def inside(self, name: str) -> "SqlType":
        return dict(self.fields)[name]


def _name(name: str) -> str:
    """As in DDL: in backquotes, unless it is a plain word."""
    is_plain = re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)
    return name if is_plain else f"`{name.replace('`', '``')}`"


BOOLEAN, STRING, BINARY = SqlType("BOOLEAN"), SqlType("STRING"), SqlType("BINARY")
TINYINT, SMALLINT, INT, BIGINT = (SqlType(n) for n in ("TINYINT", "SMALLINT", "INT", "BIGINT"))
FLOAT, DOUBLE = SqlType("FLOAT"), SqlType("DOUBLE")
DATE, TIMESTAMP = SqlType("DATE"), SqlType("TIMESTAMP")
VOID = SqlType("VOID")
"""The type of a bare NULL."""

SIMPLE_TYPES = {
    kind.name: kind
    for kind in (
        BOOLEAN, STRING, BINARY, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DATE, TIMESTAMP,
    )
}  # fmt: skip


def decimal_type(precision: int, scale: int = 0) -> SqlType:
    return SqlType("DECIMAL", precision, scale)


def array_of(element: SqlType) -> SqlType:
    return SqlType("ARRAY", fields=(("element", element),))


def map_of(key: SqlType, value: SqlType) -> SqlType:
    return SqlType("MAP", fields=(("key", key), ("value", value)))


def struct_of(fields: Iterable[tuple[str, SqlType]]) -> SqlType:
    return SqlType("STRUCT", fields=tuple(fields))
