"""The cache of the user, in which an installed package has its jars."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from job.errors import SetupError
from job.installation import folders
from job.installation.folders import (
    check_exists,
    check_writers,
    create_folder,
    job_jars,
    replacing,
)
from job.installation.java import Java


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package on a machine with Java 21."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(folders, "IN_CLONE", False)
    use_java(monkeypatch, "21.0.4")


def use_java(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(folders, "find_java", lambda: Java(Path("/java"), version))


def mode(folder: Path) -> int:
    return folder.stat().st_mode & 0o777


def test_folder_is_named_after_the_pinned_jars_and_java(tmp_path: Path) -> None:
    assert tmp_path / "cache" / "streamjoin" == job_jars().parent.parent
    assert job_jars().parent.name.endswith("-java-21.0.4")


def test_relative_cache_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert tmp_path / ".cache" / "streamjoin" == job_jars().parent.parent


def test_created_folders_are_private(tmp_path: Path) -> None:
    (tmp_path / "cache" / "streamjoin").mkdir(parents=True, mode=0o755)

    create_folder(job_jars())

    assert [0o700] * 3 == [mode(each) for each in (job_jars(), *job_jars().parents[:2])]
    check_writers(job_jars())


@pytest.mark.parametrize("parent", [0, 1, 2])
def test_folder_that_a_group_can_write_is_refused(parent: int) -> None:
    create_folder(job_jars())
    folder = (job_jars(), *job_jars().parents)[parent]
    folder.chmod(0o770)

    with pytest.raises(SetupError, match=f"other users can write {folder}, .*`chmod -R go-w"):
        check_writers(job_jars())


def test_folder_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    create_folder(job_jars())
    user = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)

    for refuse in (create_folder, check_writers):
        with pytest.raises(SetupError, match=r"belongs to another user, .*set XDG_CACHE_HOME"):
            refuse(job_jars())


def test_folder_outside_the_cache_belongs_to_this_user_or_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store.jar").touch()
    check_writers(tmp_path)

    monkeypatch.setattr(folders, "_ROOT_USER", -1)
    user = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(SetupError, match=f"set STREAMJOIN_JARS to a copy of {tmp_path} that"):
        check_writers(tmp_path)

    # A clone can belong to another user than the one of a container.
    monkeypatch.setattr(folders, "IN_CLONE", True)
    monkeypatch.setattr(folders, "ROOT", tmp_path)
    check_writers(tmp_path)


def test_file_system_without_modes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache" / "streamjoin").mkdir(parents=True)
    (tmp_path / "cache" / "streamjoin").chmod(0o777)
    monkeypatch.setattr(Path, "chmod", lambda *_: None)

    with pytest.raises(SetupError, match=r"chmod has no effect on its file system: .*STREAMJOIN_J"):
        create_folder(job_jars())


def test_file_that_vanishes_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    create_folder(job_jars())
    monkeypatch.setattr(folders, "_loaded", lambda folder: iter([folder / "gone.jar"]))

    check_writers(job_jars())


def test_file_is_replaced_at_once_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "join.jar"
    with replacing(file) as first, replacing(file) as second:
        first.write_text("first")
        second.write_text("second")
    assert "first" == file.read_text()

    with suppress(ZeroDivisionError), replacing(file) as part:
        part.write_text("incomplete")
        raise ZeroDivisionError
    assert ([file], "first") == (list(tmp_path.iterdir()), file.read_text())


def test_set_up_for_another_java_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    create_folder(job_jars())
    use_java(monkeypatch, "21.0.5")

    with pytest.raises(SetupError, match=r"-java-21\.0\.4 is of another Java or version\. Run `"):
        check_exists(job_jars())
