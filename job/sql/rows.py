"""Runs SQL on rows with Spark's own expressions, without a Spark session (SqlRows.java)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any

from job.errors import SetupError
from job.sql.messages import message_of
from job.sql.questions import Ask

_ROWS_A_QUESTION, _CHARACTERS_A_QUESTION = 2_000, 8_000_000
"""An answer has a deadline, and the worker little memory."""

_KEPT = 500
"""Programs that are kept."""

Values = Sequence[Any]
Step = Sequence[str]
"""The arguments of a selectExpr."""


class EvaluationError(ValueError):
    """An expression fails on a row, as it would fail a query. The message is Spark's."""


@dataclass(frozen=True)
class Program:
    """Steps over rows."""

    number: int
    read: "str | tuple[Program, Program]"
    steps: tuple[tuple[str, ...], ...]
    returns: tuple[str, ...]
    encodes: tuple[str, ...]


class SqlRows:
    """Programs, and the rows that they gave."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._numbers = count()
        self._stores: set[int] = set()
        self._lost: dict[int, SetupError] = {}
        """The error that ended the process with the rows of a store."""
        self._program = lru_cache(_KEPT)(self._opened)

    def program(
        self,
        read: str | tuple[Program, Program],
        steps: Sequence[Step],
        returns: Sequence[str],
        encodes: Sequence[str] = (),
    ) -> Program:
        """`read`: the columns of the rows, in DDL; or two programs, whose rows are read in pairs.

        `returns` and `encodes`: columns of the last step to return. Encoded values are equal if a
        join takes the values for equal.
        """
        return self._program(read, tuple(map(tuple, steps)), tuple(returns), tuple(encodes))

    def store(self) -> int:
        """Keeps rows until `drop`."""
        store = next(self._numbers)
        self._stores.add(store)
        return store

    def drop(self, store: int) -> None:
        self._stores.discard(store)
        if self._lost.pop(store, None) is None:
            self._answer({"kind": "drop", "store": store})

    def run(
        self, program: Program, rows: Sequence[Values], *, keep_in: int
    ) -> list[dict[str, Any]]:
        """The returned columns of each row, in order. The rows are kept, numbered from 0 in their
        store.

        `rows`: the columns in the order of the DDL, BINARY in base64, TIMESTAMP in microseconds.
        """
        question = {"program": program.number, "rows": rows, "keep": keep_in}
        return self._rows(question, program, [keep_in])

    def run_pairs(
        self, program: Program, pairs: Sequence[tuple[int | None, int | None]], of: tuple[int, int]
    ) -> list[dict[str, Any]]:
        """As `run`, for pairs of numbers of rows in two stores; None: a row of nulls."""
        question = {"program": program.number, "rows": pairs, "stores": of}
        return self._rows(question, program, of)

    def _rows(
        self, question: Mapping[str, Any], program: Program, stores: Sequence[int]
    ) -> list[dict[str, Any]]:
        rows: Sequence[Values] = question["rows"]
        answers = (
            self._run({"kind": "run", **question, "rows": part}, program, stores)
            for part in _parts(rows)
        )
        returned = (*program.returns, *program.encodes)
        return [
            dict(zip(returned, row, strict=True)) for answer in answers for row in answer["rows"]
        ]

    def _run(
        self, question: Mapping[str, Any], program: Program, stores: Sequence[int]
    ) -> Mapping[str, Any]:
        self._check(stores)
        answer = self._answer(question)
        if "is_closed" in answer:  # the worker is new, or has run many other programs
            self._check(stores)
            self._open(program)
            answer = self._answer(question)
        return answer

    def _check(self, stores: Sequence[int]) -> None:
        """Another thread may have asked what ended the process."""
        for store in stores:
            if store in self._lost:
                raise self._lost[store]

    def _opened(
        self,
        read: str | tuple[Program, Program],
        steps: tuple[tuple[str, ...], ...],
        returns: tuple[str, ...],
        encodes: tuple[str, ...],
    ) -> Program:
        program = Program(next(self._numbers), read, steps, returns, encodes)
        self._open(program)
        return program

    def _open(self, program: Program) -> None:
        question: dict[str, Any] = {"kind": "open", "program": program.number}
        question |= {"steps": program.steps}
        question |= {"returns": program.returns, "encodes": program.encodes}
        if isinstance(program.read, str):
            question["columns"] = program.read
        else:
            for read in program.read:
                self._open(read)
            question["pairs"] = [read.number for read in program.read]
        self._answer(question)

    def _answer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            answer = self._ask(question)
        except SetupError as error:
            self._lost |= dict.fromkeys(self._stores, error)
            raise
        if "error" in answer:
            raise EvaluationError(message_of(answer))
        return answer


def _parts(rows: Sequence[Values]) -> Iterator[list[Values]]:
    part: list[Values] = []
    characters = 0
    for row in rows:
        part.append(row)
        characters += sum(len(value) for value in row if isinstance(value, str))
        if len(part) == _ROWS_A_QUESTION or characters > _CHARACTERS_A_QUESTION:
            yield part
            part, characters = [], 0
    if part:
        yield part
