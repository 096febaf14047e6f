"""The words of docs/contributing/writing.md that no file of the project uses."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "contributing" / "writing.md"
FOLDERS = ("job", "service", "streamjoin", "deploy", "bench", "docs", "tests", ".ci")
FILES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "Dockerfile",
         "docker-compose.yml", "mkdocs.yml", "pyproject.toml", "join.example.yaml")  # fmt: skip
KINDS = {".py", ".java", ".md", ".yml", ".yaml", ".html", ".js", ".css", ".sh", ".toml", ".env", ""}


def avoided_words() -> list[str]:
    """The first column of the table in the section "Words"."""
    section = PAGE.read_text().split("## Words")[1].split("\n## ")[0]
    cells = re.findall(r"^\| ([a-z ,]+) \|", section, re.MULTILINE)
    return [word for cell in cells if cell != "not" for word in cell.split(", ")]


def pattern(words: list[str]) -> re.Pattern[str]:
    """Matches whole words, in any case, also as a part of a name: `_told`, `Told`."""
    spaced = "|".join(word.replace(" ", r"[ _\s#*]+") for word in words)
    return re.compile(rf"(?<![a-z])({spaced})(?![a-z])", re.IGNORECASE)


def texts() -> list[Path]:
    inside = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    skipped = {PAGE, Path(__file__)}
    recorded = ROOT / "tests" / "golden" / "checkpoint"  # written by Spark
    return [
        path
        for path in sorted([*inside, *(ROOT / name for name in FILES)])
        if path.is_file()
        and path.suffix in KINDS
        and path not in skipped
        and recorded not in path.parents
    ]


def occurrences(text: str, words: re.Pattern[str]) -> list[str]:
    return [
        f"{text.count(chr(10), 0, match.start()) + 1}: {match[0]}" for match in words.finditer(text)
    ]


def test_no_file_uses_a_word_of_the_table() -> None:
    words = pattern(avoided_words())
    used = []
    for path in texts():
        name = path.relative_to(ROOT).as_posix()
        content = path.read_text(encoding="utf-8")
        used += [f"{name}:{place}" for place in occurrences(content, words)]

    assert [] == used, f"see {PAGE.relative_to(ROOT)}:\n" + "\n".join(used)


@pytest.mark.parametrize(
    "text", ["It was told.", "def _told(self):", "is at\n    # work", "class Told:", "Beside it"]
)
def test_word_is_found_in_prose_and_in_names(text: str) -> None:
    assert 1 == len(occurrences(text, pattern(avoided_words())))


@pytest.mark.parametrize("text", ["the untold", "besides", "framework", "pytest.beacons"])
def test_other_words_are_not_found(text: str) -> None:
    assert [] == occurrences(text, pattern(avoided_words()))


def test_every_kind_of_text_is_read() -> None:
    kinds = {path.relative_to(ROOT).parts[0] for path in texts()}

    assert {*FOLDERS, "README.md", "Makefile", "Dockerfile"} <= kinds


def test_names_of_tests_begin_without_an_article() -> None:
    names = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in re.findall(r"def (test_(?:a|an|the)_\w+)", path.read_text(encoding="utf-8"))
    ]

    assert [] == names
