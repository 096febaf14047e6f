"""The class archive: an incomplete one, of a killed JVM, is not used."""

from pathlib import Path

import pytest

from job.class_archive import is_current, is_whole
from job.installation.jars import jar_folder
from job.jvm_command import CLASS_ARCHIVE


def test_archive_that_setup_has_made_is_whole() -> None:
    assert is_whole(jar_folder("spark") / CLASS_ARCHIVE)


def test_archive_of_other_jars_is_not_current(tmp_path: Path) -> None:
    for path in (jar_folder("spark")).rglob("*.*"):
        copy = tmp_path / path.relative_to(jar_folder("spark"))
        copy.parent.mkdir(exist_ok=True)
        copy.symlink_to(path)

    assert not is_current(tmp_path)


@pytest.mark.parametrize("content", [None, b"", bytes(4096) + b"classes"])
def test_archive_that_was_cut_off_is_not(tmp_path: Path, content: bytes | None) -> None:
    archive = tmp_path / CLASS_ARCHIVE
    if content is not None:
        archive.write_bytes(content)
    assert not is_whole(archive)
