"""Names, types and errors in the SQL of a spec, read by Spark."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from job.sql.json_types import Field, fields_of_json, type_of_json
from job.sql.messages import problem_of
from job.sql.time_zones import UTC
from job.sql.types import SqlType
from job.sql.worker import CostError

Ask = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Asks SqlWorker.java: job/sql/worker.py describes questions and answers."""

Columns = Sequence[tuple[str, str]]
"""Names and types."""

_FORM_OF_ZONES = (
    "write an IANA name such as Europe/Copenhagen, or an offset from UTC such as +08:00"
)
_FUNCTIONS = "https://spark.apache.org/docs/latest/api/sql"

_KEPT = 10_000
"""Answers that are kept. A spec asks about each expression, some several times."""

_DEPTH_MAX = 100
"""Of the JSON of a type."""


class SqlError(ValueError):
    """Spark, or the job, refuses a text. The message gives the reason."""


@dataclass(frozen=True)
class Name:
    """A column in a text."""

    parts: tuple[str, ...]
    start: int
    end: int
    names_a_field: bool
    """It is an argument of struct(), which names a field after it."""


@dataclass(frozen=True)
class Analysis:
    """An expression over columns, as Spark reads it."""

    text: str
    """The expression as it was asked about."""
    sql: str
    """The expression with its time zone, if its value depends on one."""
    canonical: str
    """One text for all spellings of the expression."""
    type: SqlType
    columns: frozenset[str]
    is_column: bool
    """It is a column, and nothing else."""
    is_constant: bool
    """It has one value for all rows, even if it contains a column."""
    value: str | None
    """The value of an expression without columns, as text."""
    compares: bool
    """It compares columns, which Spark does not cast, with constants."""
    can_fail: bool
    """It can fail on a row."""
    casts_number_to_time: bool
    """It casts a number to TIMESTAMP, which reads it as seconds."""
    terms: tuple["Analysis", ...]
    """The terms of its ANDs. Empty: it has no AND."""


class SqlQuestions:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._answer = lru_cache(_KEPT)(self._asked)

    def names(self, text: str, *, is_of_spec: bool = True) -> tuple[str, list[Name], list[str]]:
        """The text without comments, the columns in it, and the variables of its lambda functions.
        SqlError if it is no expression. `is_of_spec`: it may not call the job's own function."""
        question = {"kind": "names", "text": text, "is_of_spec": is_of_spec}
        answer = self._answer(json.dumps(question))
        names = [
            Name(tuple(each["parts"]), each["start"], each["end"], each["names_a_field"])
            for each in answer["names"]
        ]
        return answer["text"], names, answer["variables"]

    def analysis(self, sql: str, columns: Columns, *, time_zone: str = UTC) -> Analysis:
        """`sql` over `columns`. SqlError if Spark, or the job, refuses it. `time_zone`: one that
        Java knows."""
        question = {"kind": "expression", "sql": sql, "columns": columns}
        zoned = {} if time_zone == UTC else {"time_zone": time_zone}
        return _analysis(self._answer(json.dumps({**question, **zoned})))

    def check_filter(self, sql: str, columns: Columns) -> None:
        """SqlError if Spark refuses `sql` as the condition of a filter."""
        self._answer(json.dumps({"kind": "filter", "sql": sql, "columns": columns}))

    def check_time_zone(self, name: str) -> None:
        """SqlError if Java does not know a time zone of this name."""
        if not self._time_zone(name)["is_known"]:
            raise SqlError(f"is not a time zone: {_FORM_OF_ZONES}{self._meant_zone(name)}")

    def longest_set_back(self, time_zone: str) -> timedelta:
        """The longest time by which clocks of a known time zone are set back at once."""
        return timedelta(milliseconds=self._time_zone(time_zone)["longest_set_back_ms"])

    def _time_zone(self, name: str) -> Mapping[str, Any]:
        return self._answer(json.dumps({"kind": "time_zone", "name": name}))

    def _meant_zone(self, name: str) -> str:
        """The end of the message about an unknown time zone."""
        names = {each.casefold(): each for each in self._ask({"kind": "time_zones"})["names"]}
        wanted = name.casefold().replace(" ", "_")
        cities = [each for each in names if each.rpartition("/")[2] == wanted]
        close = sorted(cities) or get_close_matches(wanted, sorted(names), n=1, cutoff=0.75)
        return f"; did you mean {names[close[0]]}?" if close else ""

    def columns(self, ddl: str) -> list[Field]:
        """The columns of a schema. SqlError if it is no DDL."""
        return fields_of_json(self._answer(json.dumps({"kind": "columns", "ddl": ddl}))["type"])

    def _asked(self, question: str) -> Mapping[str, Any]:
        try:
            answer = self._ask(json.loads(question))
        except CostError as error:
            raise SqlError(str(error)) from error
        if (problem := problem_of(answer)) is not None:
            is_unknown = answer.get("refused") == "UNKNOWN"
            raise SqlError(problem + (self._meant(answer["what"]) if is_unknown else ""))
        if _depth(answer.get("type", "")) > _DEPTH_MAX:
            raise SqlError("has a type that is nested too deep")
        return answer

    def _meant(self, name: str) -> str:
        """The end of the message about an unknown function."""
        functions = self._ask({"kind": "functions"})["functions"]
        allowed = [each["name"] for each in functions if each["refused"] is None]
        close = get_close_matches(name, allowed, n=1)
        return f": did you mean {close[0]}()?" if close else f": see {_FUNCTIONS}"


def _analysis(answer: Mapping[str, Any]) -> Analysis:
    return Analysis(
        text=answer["text"],
        sql=answer["sql"],
        canonical=answer["sql"] if "column" in answer else answer["canonical"],
        type=type_of_json(answer["type"]),
        columns=frozenset(answer["columns"]),
        is_column="column" in answer,
        is_constant=answer["is_constant"],
        value=answer.get("value"),
        compares=answer["compares"],
        can_fail=answer["can_fail"],
        casts_number_to_time=answer["casts_number_to_time"],
        terms=tuple(map(_analysis, answer.get("conjuncts", ()))),
    )


def _depth(text: str) -> int:
    """Of the brackets in a JSON text."""
    depth = deepest = 0
    for character in text:
        depth += (character in "{[") - (character in "}]")
        deepest = max(deepest, depth)
    return deepest
