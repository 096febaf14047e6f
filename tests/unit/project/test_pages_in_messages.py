"""Messages and proposed specs name no page of docs/: a package from pip does not have the pages."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = re.compile(r"docs/[\w/-]+\.md")
GENERATORS = {"job/spec/reference.py", "service/reference.py"}
"""Programs of a clone, which write the pages."""


def texts(path: Path) -> Iterator[str]:
    """All texts of a module that are no docstrings; or the file, if it is no module."""
    if path.suffix != ".py":
        yield path.read_text()
        return
    tree = ast.parse(path.read_text())
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in alone:
            yield str(node.value)


def test_no_message_names_a_page() -> None:
    files = [
        path
        for room in ("job", "service", "streamjoin")
        for ending in ("*.py", "*.html")
        for path in sorted((ROOT / room).rglob(ending))
    ]
    named = {
        f"{path.relative_to(ROOT)}: {page}"
        for path in files
        if str(path.relative_to(ROOT)) not in GENERATORS
        for text in texts(path)
        for page in PAGE.findall(text)
    }

    assert not named
