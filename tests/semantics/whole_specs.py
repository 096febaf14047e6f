"""Random specs, in which most fields are valid."""

import random
from collections.abc import Iterator
from typing import Any

from job.spec.join_conditions import JoinType
from job.spec.sides import SIDES
from tests.semantics.sql_fuzz import COLUMNS, SqlFuzz

_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
_KEYS = [
    "b",
    "y",
    "h",
    "i",
    "n",
    "f",
    "x",
    "p",
    "q",
    "s",
    "u",
    "z",
    "d",
    "t",
    "ai",
    "st",
    "m",
    "sm",
]
_DURATIONS = ["0 seconds", "1 ms", "10 seconds", "1 hour", "-5 seconds", "2 days", "1 fortnight"]


def specs(seed: int) -> Iterator[dict[str, Any]]:
    """Documents of specs, indefinitely."""
    fuzz = _SpecFuzz(seed)
    while True:
        yield fuzz.spec()


class _SpecFuzz:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._sql = SqlFuzz(seed)
        self._of_side = {side: SqlFuzz(seed + 1, (side,)) for side in SIDES}

    def spec(self) -> dict[str, Any]:
        choose = self._random
        kind = choose.choice(list(JoinType))
        keys = self._keys(choose.randint(1, 3))
        shown = kind.shown_sides
        sql = self._sql if len(shown) == len(SIDES) else self._of_side[shown[0]]
        plain = f"{shown[0]}.n"
        columns = {"c0": sql.expression(depth=choose.choice([0, 1, 1, 2])), "plain": plain}
        output: dict[str, Any] = {"topic": "out", "columns": columns, "delivery": "at_least_once"}
        if choose.random() < 0.4:
            output["filter"] = choose.choice([sql.expression("BOOLEAN", 1), "plain > 1", "c0 = c0"])
        if choose.random() < 0.4:
            output["key"] = choose.choice([sql.expression(None, 1), "c0", "plain", "upper(c0)"])
        join: dict[str, Any] = {"type": kind.value, **self._window()}
        if choose.random() < 0.25:
            join["condition"] = self._sql.expression("BOOLEAN", 1)
        if choose.random() < 0.2:
            join["null_safe"] = choose.choice([True, [choose.random() < 0.5 for _ in keys[0]]])
        return {
            "name": "tested",
            "kafka": {"bootstrap_servers": "nowhere:1"},
            "left": self._side("left", keys[0]),
            "right": self._side("right", keys[1]),
            "join": join,
            "output": output,
            "checkpoint": "/checkpoints/tested",
            "on_bad_record": "drop",
        }

    def _side(self, side: str, key: list[str]) -> dict[str, Any]:
        choose = self._random
        found: dict[str, Any] = {
            "topic": f"{side}s",
            "schema": _SCHEMA,
            "key": key,
            "event_time": choose.choice(["t", "t", "record_timestamp"]),
            "watermark_delay": self._duration(),
        }
        if choose.random() < 0.25:
            sql = self._of_side[side]  # type: ignore[index]
            found["columns"] = {"c1": sql.expression(depth=1), "c2": "concat(c1, c1)"}
            if choose.random() < 0.5:
                found["columns"]["c2"] = sql.expression(depth=1)
            found["key"] = [choose.choice(["c1", "c2", part]) for part in key]
            found["event_time"] = choose.choice(["t", "coalesce(t, record_timestamp)"])
        if choose.random() < 0.15:
            found["filter"] = self._of_side[side].expression("BOOLEAN", 1)  # type: ignore[index]
        return found

    def _keys(self, count: int) -> tuple[list[str], list[str]]:
        """Keys of both sides, mostly columns of one type."""
        pairs = [self._pair() for _ in range(count)]
        return [left for left, _ in pairs], [right for _, right in pairs]

    def _pair(self) -> tuple[str, str]:
        choose = self._random
        left = choose.choice(_KEYS)
        if choose.random() < 0.8:
            return left, left
        if choose.random() < 0.6:
            return left, choose.choice(_KEYS)
        return tuple(self._of_side[side].expression(depth=1) for side in SIDES)  # type: ignore[return-value]

    def _window(self) -> dict[str, Any]:
        choose = self._random
        if choose.random() < 0.2:
            offset = {"size": self._duration(), "offset": self._duration()}
            return {"window": choose.choice([self._duration(), offset])}
        bounds = {"before": self._duration(), "after": self._duration()}
        if choose.random() < 0.1:
            del bounds[choose.choice(list(bounds))]
        return {"match_window": bounds}

    def _duration(self) -> str:
        choose = self._random
        return choose.choice(_DURATIONS) if choose.random() < 0.05 else "10 seconds"
