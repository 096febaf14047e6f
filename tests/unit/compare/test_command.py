"""`streamjoin compare` refuses outputs that cannot be compared, before it reads a topic."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from job.__main__ import app
from tests.unit.specs import spec_yaml


def compare(folder: Path, *options: str, **changes: object) -> Result:
    """The base spec, and one with changes."""
    files = [folder / "join.yaml", folder / "shadow.yaml"]
    for file, text in zip(files, (spec_yaml(), spec_yaml(**changes)), strict=True):
        file.write_text(text)
    return CliRunner().invoke(app, ["compare", *map(str, files), *options])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "output.topic: is the output topic of both specs"),
        (
            {"output__topic": "shadow", "left__topic": "views"},
            "left.topic: must be impressions as in the first spec",
        ),
        (
            {
                "output__topic": "shadow",
                "output__format": "avro",
                "schema_registry": {"url": "http://localhost:1"},
            },
            "output.format: must be json as in the first spec",
        ),
        (
            {"output__topic": "shadow", "output__key": "ad_id", "output__key_format": "json"},
            "output.key_format: must be string as in the first spec",
        ),
    ],
)
def test_other_results_are_refused_by_field(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    done = compare(tmp_path, **changes)

    assert 2 == done.exit_code
    assert message in done.output


def test_time_without_offset_is_refused(tmp_path: Path) -> None:
    done = compare(tmp_path, "--since", "2026-01-31T12:00:00", output__topic="shadow")

    assert 1 == done.exit_code
    assert "invalid --since 2026-01-31T12:00:00: use a time such as" in done.output
