"""What a join with a table needs, and what it does not have. Pure."""

from collections.abc import Iterator

from job.spec.frozen import Contradiction
from job.spec.join_conditions import JoinConditions, JoinOperator, JoinType
from job.spec.sides import OTHER_SIDE, Side

_TYPES: dict[Side, tuple[JoinType, ...]] = {
    "left": (JoinType.INNER, JoinType.RIGHT_OUTER, JoinType.RIGHT_SEMI, JoinType.RIGHT_ANTI),
    "right": (JoinType.INNER, JoinType.LEFT_OUTER, JoinType.LEFT_SEMI, JoinType.LEFT_ANTI),
}
"""Types of the join with a table on this side: each row of the stream has one result or none."""


def problems(join: JoinConditions, table: Side) -> Iterator[Contradiction]:
    """`table`: the side that is one."""
    stream = OTHER_SIDE[table]
    if join.type not in _TYPES[table]:
        message = (
            f"emits rows of the {table} side, which is a table: a change of a table has no result. "
            f"Use one of {', '.join(_TYPES[table])}"
        )
        yield Contradiction(message, ("join", "type"), join.type)
    for name in ("match_window", "window", "pick", "unbounded_state"):
        if getattr(join, name):
            message = (
                f"does not apply to a table ({table}.table): a row of the {stream} side joins the "
                "row that its key has in the table; remove it, or remove "
                f"{table}.table to join two streams"
            )
            yield Contradiction(message, ("join", name), name)
    if join.operator is JoinOperator.SPARK:
        message = f"does not join a table ({table}.table): remove join.operator"
        yield Contradiction(message, ("join", "operator"), join.operator)
