"""What happens after the join: output filter, columns, headers and key of a result."""

from collections.abc import Sequence
from dataclasses import dataclass

from job.plan import result_checks, result_sql
from job.plan.plan import JoinPlan
from job.semantics.rows import JoinedRow, Row
from job.semantics.simulated_side import DecodedRow, SideReader
from job.spec.value_format import KeyFormat
from job.sql.rows import SqlRows


@dataclass(frozen=True)
class Result:
    """A joined row after the output filter."""

    failed_field: str | None
    """Field of the spec that fails on the joined row, which is not a result then. None: no field
    fails."""
    value: str | None
    key: str | None
    headers: dict[str, str | None]
    timestamp_ms: int | None
    """None: the time of writing."""


class SimulatedOutput:
    def __init__(self, plan: JoinPlan, sides: tuple[SideReader, SideReader], rows: SqlRows) -> None:
        self._rows = rows
        self._stores = (sides[0].store, sides[1].store)
        self._headers = {name: f"header_{index}" for index, name in enumerate(plan.output.headers)}
        returned = {
            "passes": "passes",
            "failed_field": result_checks.failed_field(plan)
            if plan.checks.any
            else "cast(NULL AS STRING)",
            "value": result_sql.json_value(plan),
            "key": _key(plan),
            "timestamp_ms": result_sql.event_time_ms(plan)
            if plan.output.has_event_time
            else "cast(NULL AS BIGINT)",
            **{short: result_sql.header(plan, name) for name, short in self._headers.items()},
        }
        filters = " AND ".join(f"coalesce({each}, false)" for each in result_checks.filters(plan))
        tried = result_checks.tried(plan) if plan.checks.any else "true"
        steps = [
            ["*", f"({filters or 'true'}) AS passes"],
            ["*", f"CASE WHEN passes THEN {tried} END AS {result_checks.TRIED}"],
            [
                "passes" if name == "passes" else f"CASE WHEN passes THEN {sql} END AS {name}"
                for name, sql in returned.items()
            ],
        ]
        programs = (sides[0].program, sides[1].program)
        self._program = rows.program(programs, steps, list(returned))
        self._null_filter = None
        if plan.output.filter is not None:
            is_null = f"{result_checks.filter_value(plan)} IS NULL AS is_null"
            self._null_filter = rows.program(programs, [[is_null]], ["is_null"])

    def results(self, rows: Sequence[JoinedRow]) -> list[Result | None]:
        """None: the output filter drops the row."""
        pairs = [(_number(row.left), _number(row.right)) for row in rows]
        answers = self._rows.run_pairs(self._program, pairs, self._stores)
        return [
            Result(
                answer["failed_field"],
                answer["value"],
                answer["key"],
                {name: answer[short] for name, short in self._headers.items()},
                answer["timestamp_ms"],
            )
            if answer["passes"]
            else None
            for answer in answers
        ]

    def has_null_filter(self, rows: Sequence[JoinedRow]) -> list[bool]:
        """Whether the output filter is null on a row that it drops."""
        if self._null_filter is None:
            return [False] * len(rows)
        pairs = [(_number(row.left), _number(row.right)) for row in rows]
        answers = self._rows.run_pairs(self._null_filter, pairs, self._stores)
        return [answer["is_null"] for answer in answers]


def _key(plan: JoinPlan) -> str:
    """A simulation shows an Avro or Protobuf key as JSON."""
    has_registry = plan.output.key_format.with_registry is not None
    is_json = has_registry or plan.output.key_format is KeyFormat.JSON
    return result_sql.json_key(plan) if is_json else result_sql.key(plan)


def _number(row: Row | None) -> int | None:
    return row.number if isinstance(row, DecodedRow) else None
