"""The Dockerfile, without a build: what only a test of the images found before."""

import ast
import re
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.groups import ROOT, _files, _imports, _modules

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def closure(*names: str) -> set[Path]:
    """Modules that are imported with these. Imports for types alone do not count."""
    waiting, found = [*names], set[Path]()
    while waiting:
        for path in _modules(waiting.pop(), ROOT):
            if path.is_file() and path not in found:
                found.add(path)
                waiting += imports_at_run_time(path)
    return found


def imports_at_run_time(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    return _imports(tree)


def test_service_imports_no_package_that_its_image_does_not_have() -> None:
    pruned = set(re.findall(r"--prune (\S+)", DOCKERFILE))
    modules = closure(*(f"service.{path.stem}" for path in _files(ROOT / "service")))
    names = {name.split(".")[0] for path in modules for name in imports_at_run_time(path)}
    installed = {
        name: {re.sub(r"[-_.]+", "-", each).lower() for each in packages}
        for name, packages in packages_distributions().items()
    }

    assert len(pruned) > 5
    assert "fastapi" in names
    assert set() == {name for name in names if pruned & set(installed.get(name, ()))}


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("job.installation.jars", "python3 -m job.installation.jars"),
        ("job.installation.compiler", "python3 -m job.installation.compiler"),
        ("deploy.docker.load", 'CMD ["python", "-m", "deploy.docker.load"]'),
    ],
)
def test_stage_of_an_image_copies_all_that_its_program_imports(program: str, command: str) -> None:
    [stage] = [part for part in DOCKERFILE.split("\nFROM ") if command in part]
    copied = re.findall(r"^COPY (?!--)((?:[^\\\n]|\\\n)+)", stage, re.MULTILINE)
    sources = [word for line in copied for word in line.replace("\\\n", "").split()[:-1]]
    files = {file for source in sources for file in _files(ROOT / source)}

    assert {ROOT / "job/errors.py"} < closure(program)
    assert set() == closure(program) - files
