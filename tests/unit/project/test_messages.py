"""What messages and proposed specs name exists where the user is: commands with their options do,
pages of docs/ do not in a package from pip."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.core import TyperGroup

from job.__main__ import app

ROOT = Path(__file__).parents[3]
PAGE = re.compile(r"docs/[\w/-]+\.md")
COMMAND = re.compile(r"`streamjoin ([^`]+)`")
JAVA_BREAK = re.compile(r'"\s*\+\s*"')
"""Between two lines of a text."""
VALUE = "…"
"""In place of a value that is computed."""
GENERATORS = {"job/spec/reference.py", "service/reference.py"}
"""Programs of a clone, which write the pages."""
GROUP = typer.main.get_command(app)


def texts(path: Path) -> Iterator[str]:
    """All texts of a module that are no docstrings; or the file, if it is no module."""
    if path.suffix != ".py":
        yield JAVA_BREAK.sub("", path.read_text())
        return
    tree = ast.parse(path.read_text())
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(part) for part in node.values}
            yield "".join(_text(part) or VALUE for part in node.values)
        elif _text(node) is not None:
            yield _text(node) or ""


def _text(node: ast.AST) -> str | None:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return str(node.value) if is_text and isinstance(node, ast.Constant) else None


FILES = [
    path
    for room in ("job", "service", "streamjoin")
    for ending in ("*.py", "*.html", "*.java")
    for path in sorted((ROOT / room).rglob(ending))
    if str(path.relative_to(ROOT)) not in GENERATORS
]
TEXTS = [(str(path.relative_to(ROOT)), text) for path in FILES for text in texts(path)]


def test_no_message_names_a_page() -> None:
    assert set() == {f"{name}: {page}" for name, text in TEXTS for page in PAGE.findall(text)}


def unknown_part(words: list[str]) -> str | None:
    """The first word of a command that is no command and no option of it. None: all are known."""
    command = GROUP
    while isinstance(command, TyperGroup) and words and words[0] != VALUE:
        name, *words = words
        if name not in command.commands:
            return name
        command = command.commands[name]
    options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    return next((word for word in words if word.startswith("--") and word not in options), None)


def test_each_command_in_a_message_exists_with_its_options() -> None:
    named = [(name, command) for name, text in TEXTS for command in COMMAND.findall(text)]

    assert len(named) > 40
    assert [] == [each for each in named if unknown_part(each[1].split()) is not None]


def test_command_or_option_that_does_not_exist_is_found() -> None:
    assert "stat" == unknown_part(["stat", "SPEC"])
    assert "made" == unknown_part(["topics", "made", "SPEC"])
    assert "--other" == unknown_part(["run", "SPEC", "--other"])
    assert unknown_part(["topics", "create", "SPEC", "--inputs"]) is None
