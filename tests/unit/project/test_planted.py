"""A bug that a test plants in a Java class replaces a text of the class. A text that has changed is
found here, and not only by the long tests with Spark."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from job import java_jar
from tests.semantics.planted_java import Plant

_TESTS = Path(__file__).parents[2] / "semantics"


def _plants(module: ModuleType) -> dict[str, Plant]:
    """Of all tables of the module."""
    tables = [value for value in vars(module).values() if isinstance(value, dict)]
    return {
        name: plant for table in tables for name, plant in table.items() if isinstance(plant, Plant)
    }


PLANTED = {
    path.stem: _plants(import_module(f"tests.semantics.{path.stem}"))
    for path in sorted(_TESTS.glob("test_*.py"))
    if "compile_plants(" in path.read_text()
}


@pytest.mark.parametrize("module", PLANTED)
def test_text_that_a_planted_bug_replaces_is_in_its_source_once(module: str) -> None:
    sources = {path.name: path.read_text() for path in java_jar.sources()}

    assert [] == [
        f"{name}: {plant.text}"
        for name, plant in PLANTED[module].items()
        if sources[plant.source].count(plant.text) != 1
    ]
