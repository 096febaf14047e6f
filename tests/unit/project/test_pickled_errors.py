"""Each exception of the project is the same in another process."""

import ast
import importlib
import inspect
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from job.errors import Problem

ROOT = Path(__file__).parents[3]
PACKAGES = ("job", "service", "deploy", "bench")
SUFFIXES = ("Error", "Exception")
VALUES: dict[Any, object] = {
    str: "the cause",
    bool: True,
    float: 2.5,
    list[str]: ["resume"],
    list[Problem]: [Problem("left.topic", "x", "is unknown")],
}
"""Arguments of a constructor, by their types."""


def exceptions() -> Iterator[type[Exception]]:
    """All classes with a name or a base of an exception. Ruff requires such a name (N818)."""
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    for path in paths:
        names = [
            node.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ClassDef)
            and any(
                ast.unparse(part).endswith(SUFFIXES) for part in (*node.bases, ast.Name(node.name))
            )
        ]
        if names:
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            found = (getattr(module, name) for name in names)
            yield from (each for each in found if issubclass(each, Exception))


EXCEPTIONS = list(exceptions())


def example(kind: type[Exception]) -> Exception:
    """With a value for each argument of the constructor that is not the default."""
    if not inspect.isfunction(kind.__init__):  # That of Exception.
        return kind("the cause")
    arguments: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in inspect.signature(kind).parameters.values():
        value = VALUES[parameter.annotation]
        if parameter.default is value:
            value = not value
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            named[parameter.name] = value
        else:
            arguments.append(value)
    return kind(*arguments, **named)


@pytest.mark.parametrize("kind", EXCEPTIONS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_exception_survives_pickle(kind: type[Exception]) -> None:
    error = example(kind)
    error.add_note("a note")

    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
    assert type(copy) is kind
    assert str(error) == str(copy)
    assert error.args == copy.args
    assert vars(error) == vars(copy)


def test_exceptions_with_arguments_are_among_them() -> None:
    names = {kind.__name__ for kind in EXCEPTIONS}

    assert {"SpecError", "ConflictError", "QueryError", "AbortedError", "SimulationError"} <= names
