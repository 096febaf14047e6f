"""Which Java is used, and the message if there is none. Scripts stand in for Java."""

from pathlib import Path

import pytest

from job.errors import SetupError
from job.installation import java
from job.installation.java import Java, find_java, java_home, tried_java

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java; tests add some."""
    (tmp_path / "path").mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(java, "SYSTEM_JAVAS", tmp_path / "jvm")
    monkeypatch.setattr(java, "RECORD", tmp_path / "java_home")
    return tmp_path


@pytest.fixture(autouse=True)
def no_known_programs() -> None:
    java._java_of.cache_clear()


def install(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"""#!/bin/sh
echo '    java.home = {home}' >&2
echo '    java.version = {version}' >&2
""")
    program.chmod(0o755)
    return home


def test_java_home_wins_when_it_is_new_enough(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(machine / "jvm" / "java-17", "17")
    chosen = install(machine / "chosen", "21")
    monkeypatch.setenv("JAVA_HOME", str(chosen))

    assert chosen == java_home()


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16"])
def test_old_java_home_is_passed_over(
    machine: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(machine / "old", version)))
    good = install(machine / "jvm" / "java-17", "17")

    assert good == java_home()


def test_java_that_setup_noted_is_found_again(machine: Path) -> None:
    install(machine / "jvm" / "java-17", "17")
    noted = install(machine / "noted", "21")
    (machine / "java_home").write_text(f"{noted}\n")

    assert noted == java_home()


def test_link_on_the_path_leads_to_its_home(machine: Path) -> None:
    home = install(machine / "elsewhere", "17")
    (machine / "path" / "java").symlink_to(home / "bin" / "java")

    assert home == java_home()


def test_java_that_does_not_run_is_passed_over(machine: Path) -> None:
    broken = install(machine / "broken", "17") / "bin" / "java"
    broken.write_text(f"{broken.read_text()}exit 1\n")
    (machine / "path" / "java").symlink_to(broken)
    good = install(machine / "jvm" / "java-17", "17")

    assert good == java_home()


def test_version_is_read_without_a_start_of_java(machine: Path) -> None:
    home = install(machine / "jvm" / "java-21", "never printed")
    (home / "release").write_text('IMPLEMENTOR="Debian"\nJAVA_VERSION="21.0.4"\n')
    (machine / "path" / "java").symlink_to(home / "bin" / "java")

    found = find_java()

    assert (home, "21.0.4", 21) == (found and (found.home, found.version, found.release))


def test_java_that_is_described_and_does_not_run_is_refused_by_set_up(machine: Path) -> None:
    home = install(machine / "jvm" / "java-21", "21")
    (home / "release").write_text('JAVA_VERSION="21.0.4"\n')
    assert home == tried_java().home

    (home / "bin" / "java").write_text("#!/bin/sh\nexit 127\n")
    assert home == java_home()
    with pytest.raises(SetupError, match=f"{home} does not run: .* set JAVA_HOME"):
        tried_java()


def test_early_access_has_a_release() -> None:
    assert 26 == Java(Path("/java"), "26-ea").release


def test_without_a_java_the_message_names_how_to_get_one() -> None:
    with pytest.raises(SetupError, match="apt-get install openjdk-17-jre-headless"):
        java_home()


def test_without_a_new_java_the_message_names_the_old_ones(machine: Path) -> None:
    old = install(machine / "jvm" / "java-11", "11")

    with pytest.raises(SetupError, match=f"{old} is Java 11"):
        java_home()
