"""The jar of the real-time engine's processor is made from its sources, and says from which."""

import zipfile
from pathlib import Path

import pytest

from job.errors import SetupError
from job.installation.compiler import build
from job.java_jar import CHECKSUM_ENTRY, sources_checksum

pytestmark = pytest.mark.processes


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "Answer.java").write_text("package streamjoin; final class Answer { int is = 42; }")
    return folder


def test_jar_is_the_same_wherever_it_is_built(sources: Path, tmp_path: Path) -> None:
    first, second = (build(tmp_path / name, folders=[sources], spark=tmp_path) for name in "ab")

    assert first.read_bytes() == second.read_bytes()


def test_jar_is_built_again_only_if_a_source_has_changed(sources: Path, tmp_path: Path) -> None:
    jar = build(tmp_path / "jars", folders=[sources], spark=tmp_path)
    built = jar.stat()
    build(tmp_path / "jars", folders=[sources], spark=tmp_path)
    assert built == jar.stat()

    (sources / "Answer.java").write_text("package streamjoin; final class Answer { int is = 43; }")
    build(tmp_path / "jars", folders=[sources], spark=tmp_path)

    assert built != jar.stat()
    with zipfile.ZipFile(jar) as archive:
        assert sources_checksum([sources]) == archive.read(CHECKSUM_ENTRY).decode()


def test_source_that_does_not_compile_leaves_no_jar(sources: Path, tmp_path: Path) -> None:
    (sources / "Answer.java").write_text("package streamjoin; final class Answer { int is = no; }")

    with pytest.raises(SetupError, match="no cannot be resolved"):
        build(tmp_path / "jars", folders=[sources], spark=tmp_path)
    assert not list((tmp_path / "jars").rglob("*.jar"))
