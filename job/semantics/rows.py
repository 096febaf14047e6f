"""The words of the operator: sides, rows, keys and joined rows. It knows no SQL and no clock."""

from typing import Literal, NamedTuple, TypeAlias

Side = Literal["left", "right"]
"""JoinSide: LeftSide (alias `left`) and RightSide (alias `right`)."""

SIDES: tuple[Side, Side] = ("left", "right")

# Rows are opaque here: whoever builds the operator says how a key and an event time are read
# from one. Tuples of values in tests, decoded records in the simulator.
Row: TypeAlias = object
Key: TypeAlias = tuple[object, ...]

MICROS_PER_MS = 1000


class JoinedRow(NamedTuple):
    """A left and a right row; None stands for the all-null row of a side (nullLeft, nullRight)."""

    left: Row | None
    right: Row | None


def other(side: Side) -> Side:
    return "right" if side == "left" else "left"


def joined(side: Side, this: Row | None, that: Row | None) -> JoinedRow:
    """generateJoinedRow: `this` row of `side` beside `that` row of the other side."""
    return JoinedRow(this, that) if side == "left" else JoinedRow(that, this)


def key_of(values: tuple[object, ...]) -> Key:
    """`values` as Spark compares join keys: all NaN are one value, and -0.0 is 0.0.

    Spark rewrites floating point join keys so (NormalizeFloatingNumbers) since it compares keys
    byte by byte.
    """
    return tuple(_normalized(value) for value in values)


def _normalized(value: object) -> object:
    if isinstance(value, tuple):
        return key_of(value)
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value
