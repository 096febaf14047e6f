"""`streamjoin init` refuses a file that it could not write before it reads a topic."""

from pathlib import Path

from typer.testing import CliRunner

from job.__main__ import app


def test_file_in_a_missing_folder_is_refused_before_the_topics_are_read(tmp_path: Path) -> None:
    file = tmp_path / "missing" / "join.yaml"

    done = CliRunner().invoke(app, ["init", str(file)])

    assert 1 == done.exit_code
    assert f"there is no folder {file.parent}: create it" in done.output
    assert "Kafka brokers" not in done.output
