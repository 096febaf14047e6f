"""Peers in Java are compiled once, and again when they have changed."""

from pathlib import Path

import pytest

from bench.peers import java
from bench.peers.java import JavaProgram
from job.errors import SetupError

pytestmark = pytest.mark.processes

# Records that it was called, and creates the folder after -d.
JAVAC = """#!/bin/sh
echo called >>"$(dirname "$0")/calls"
while [ "$1" != -d ]; do shift; done
mkdir -p "$2"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java home without a compiler."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    monkeypatch.setattr(java, "java_home", lambda: home)
    monkeypatch.setattr(java, "_CLASSES", tmp_path / "classes")
    return home


@pytest.fixture
def program(tmp_path: Path) -> JavaProgram:
    source = tmp_path / "peer" / "Join.java"
    source.parent.mkdir()
    source.write_text("class Join {}")
    return JavaProgram(source, jar_sets=())


def with_compiler(home: Path, script: str = JAVAC) -> None:
    javac = home / "bin" / "javac"
    javac.write_text(script)
    javac.chmod(0o755)


def calls(home: Path) -> int:
    return len((home / "bin" / "calls").read_text().splitlines())


def test_changed_peer_is_compiled_again(home: Path, program: JavaProgram) -> None:
    with_compiler(home)
    program.prepare()
    before = program.command()

    program.source.write_text("class Join { int changed; }")
    program.prepare()

    assert 2 == calls(home)
    assert before != program.command()


def test_peer_that_cannot_be_compiled_is_left_out(home: Path, program: JavaProgram) -> None:
    with_compiler(home, "#!/bin/sh\necho 'no such class' >&2; exit 1\n")

    with pytest.raises(SetupError, match=r"Join\.java cannot be compiled:\nno such class"):
        program.prepare()

    assert [] == list((home.parent / "classes").iterdir())


@pytest.mark.usefixtures("home")
def test_without_a_compiler_the_message_names_how_to_get_one(program: JavaProgram) -> None:
    with pytest.raises(SetupError, match="sudo apt-get install openjdk-17-jdk-headless"):
        program.prepare()
