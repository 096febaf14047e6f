"""Users get ranges of versions, developers and images the exact versions of uv.lock."""

import tomllib
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK: list[dict[str, Any]] = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
# This package uses internals of these.
EXACT = {"pyspark", "uvicorn"}


def requirements() -> list[Requirement]:
    lists = (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    return [Requirement(line) for line in chain.from_iterable(lists)]


def test_only_packages_whose_internals_are_used_have_an_exact_version() -> None:
    exact = {
        requirement.name for requirement in requirements() if "==" in str(requirement.specifier)
    }

    assert EXACT == exact


def test_lock_file_was_made_from_these_requirements() -> None:
    [locked] = [package for package in LOCK if package["name"] == "streamjoin"]
    ranges = {
        line["name"]: Requirement(f"{line['name']}{line['specifier']}").specifier
        for line in locked["metadata"]["requires-dist"]
    }

    assert {line.name: line.specifier for line in requirements()} == ranges


def test_set_up_has_installed_the_locked_versions() -> None:
    locked = {package["name"]: package["version"] for package in LOCK}
    names = [requirement.name for requirement in requirements()]

    assert {name: locked[name] for name in names} == {name: version(name) for name in names}
