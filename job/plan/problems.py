"""Collects the problems of a spec. Pure."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from job.errors import Problem, SpecError
from job.spec.expressions import Expression, Scope

Result = TypeVar("Result")
Parser = Callable[[str, Scope, str], Expression]

CAN_FAIL = (
    "can fail on a record (a cast, a division, an overflow): write it so that it cannot fail, e.g. "
    "with try_cast"
)
"""Of an expression that is not checked on each record."""


class Problems:
    """Collects all problems, so that the user sees them at once."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, field: str, value: str | None, message: str) -> None:
        self.found.append(Problem(field, value, message))

    def of(self, make: Callable[[], Result]) -> Result | None:
        """The result of `make`. None: it raised a SpecError, whose problems are added."""
        try:
            return make()
        except SpecError as error:
            self.found.extend(error.problems)
            return None


def optional(
    problems: Problems, parse: Parser, text: str | None, scope: Scope, field: str
) -> Expression | None:
    return None if text is None else problems.of(partial(parse, text, scope, field))
