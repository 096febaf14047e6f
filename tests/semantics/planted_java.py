"""Bugs that are planted in the Java classes of join and writer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from job import java_jar
from job.installation.compiler import compile_java
from job.installation.folders import spark_jars
from job.installation.jars import jar_folder
from job.join import processor
from job.spark import java_classes
from job.writer import transactions
from tests.semantics.spark_session import TEST_CLASSES

_JOIN_AND_WRITER = [
    *java_jar.sources([folder for folder in java_jar.SOURCES if folder.name in ("join", "writer")]),
    # What these use of other folders.
    *(source for source in java_jar.sources() if source.name == "DriverEndpoint.java"),
]


@dataclass(frozen=True)
class Plant:
    """A bug in a source: the text that is replaced, and by what."""

    source: str
    text: str
    by: str


def compile_plants(plants: Mapping[str, Plant]) -> None:
    """Compile the classes of join and writer with each bug, in the package of the bug's name."""
    files = []
    for name, plant in plants.items():
        folder = TEST_CLASSES / "sources" / name
        folder.mkdir(parents=True)
        for source in _JOIN_AND_WRITER:
            text = source.read_text()
            if source.name == plant.source:
                assert 1 == text.count(plant.text), f"{plant.text} is not in {source.name} once"
                text = text.replace(plant.text, plant.by)
            file = folder / source.name
            file.write_text(re.sub(r"^package .*;", f"package {name};", text, flags=re.MULTILINE))
            files.append(file)
    compile_java(files, TEST_CLASSES, [spark_jars(), jar_folder("spark")])


def use_plant(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Use the classes with this bug."""
    monkeypatch.setattr(java_classes, "_PACKAGE", name)
    for module in (processor, transactions):
        monkeypatch.setattr(module, "check_classes", lambda _: None)
