"""Types of the operator: sides, rows, keys and joined rows. No SQL and no clock."""

from typing import Literal, NamedTuple, TypeAlias

Side = Literal["left", "right"]
"""JoinSide: LeftSide (alias `left`) and RightSide (alias `right`)."""

SIDES: tuple[Side, Side] = ("left", "right")

# Opaque: the plan of the operator has functions that read keys and event times. Tests use tuples of
# values, the simulator decoded records.
Row: TypeAlias = object
Key: TypeAlias = tuple[object, ...]

MICROS_PER_MS = 1000


class JoinedRow(NamedTuple):
    """A left and a right row. None: the all-null row of a side (nullLeft, nullRight)."""

    left: Row | None
    right: Row | None


def other(side: Side) -> Side:
    return "right" if side == "left" else "left"


def joined(side: Side, this: Row | None, that: Row | None) -> JoinedRow:
    """generateJoinedRow: `this` row of `side` with `that` row of the other side."""
    return JoinedRow(this, that) if side == "left" else JoinedRow(that, this)
