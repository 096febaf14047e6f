"""The table of faults names existing tests."""

import re
from pathlib import Path

TABLE = Path(__file__).parents[2] / "faults" / "README.md"
FAULTS = 31


def test_every_fault_has_a_row_and_every_test_named_is_there() -> None:
    text = TABLE.read_text()
    rows = {int(number) for number in re.findall(r"^\| F(\d+) \|", text, re.MULTILINE)}
    assert set(range(1, FAULTS + 1)) == rows

    named = re.findall(r"`([\w./]+\.py)::(\w+)`", text)
    assert named
    for file, test in named:
        assert f"def {test}(" in (TABLE.parent / file).read_text(), f"{file}::{test}"
