"""A bug that a test plants in a Java class replaces a text of the class. A text that has changed is
found here, and not only by the long tests with Spark."""

from importlib import import_module
from pathlib import Path

import pytest

from job import java_jar

_TESTS = Path(__file__).parents[2] / "semantics"
PLANTED = {
    path.stem: import_module(f"tests.semantics.{path.stem}").PLANTED
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
