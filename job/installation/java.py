"""Finds the Java that runs Kafka and Spark on this machine. Standard library only.

python -m job.installation.java     prints its home; without one, prints how to install it and fails
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from job.errors import SetupError
from job.installation.clone import ROOT, SETUP_COMMAND
from job.installation.exit_code import exit_code

# `make setup` writes the Java that it found to this file.
RECORD = ROOT / ".tools" / "java_home"
SYSTEM_JAVAS = Path("/usr/lib/jvm")
# Spark 4 and Kafka 4's broker are compiled for 17.
OLDEST_RELEASE = 17
# A Java that does not print its version within this time is not usable.
ANSWER_SECONDS = 20


def java_home() -> Path:
    """The home of a Java 17 or newer: JAVA_HOME, the one that set-up found, or any other on this
    machine. SetupError says how to get one."""
    return found_java().home


def found_java() -> "Java":
    java = find_java()
    if java is None:
        raise SetupError(_how_to_get_java())
    return java


def tried_java() -> "Java":
    """`found_java`, after it has run once: otherwise the file with its version is enough."""
    java = found_java()
    if _run(java.home / "bin" / "java") is None:
        raise SetupError(
            f"the Java in {java.home} does not run: `{java.home}/bin/java -version` shows why. "
            "Install it again, or set JAVA_HOME to the folder of another"
        )
    return java


def find_java() -> "Java | None":
    """The Java of `java_home`. None: there is none."""
    return next((java for java in _javas() if java.release >= OLDEST_RELEASE), None)


def _javas() -> "Iterator[Java]":
    return filter(None, map(_java_of, _candidates()))


@dataclass(frozen=True)
class Java:
    home: Path
    version: str
    """As `17.0.15`."""

    @property
    def release(self) -> int:
        """17 of `17.0.15`; Java 8 and older report 1.8."""
        return int(self.version.removeprefix("1.").partition(".")[0].partition("-")[0])


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if RECORD.exists():
        yield Path(RECORD.read_text(encoding="utf-8").strip()) / "bin" / "java"
    if program := shutil.which("java"):
        yield Path(program)
    # Sorted by name, so that the same machine always gets the same one.
    yield from sorted(SYSTEM_JAVAS.glob("*/bin/java"))


@cache
def _java_of(program: Path) -> Java | None:
    """None: it is not usable."""
    return _described(program) or _run(program)


def _described(program: Path) -> Java | None:
    """From the file that a Java has in its home: a JVM takes a tenth of a second to start. None:
    the program is a wrapper or a stub, or its Java is not complete."""
    home = Path(os.path.realpath(program)).parent.parent
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    version = re.search(r'^JAVA_VERSION="(\d[\w.+-]*)"', text, re.MULTILINE)
    is_complete = os.access(home / "bin" / "java", os.X_OK)
    return Java(home, version[1]) if version and is_complete else None


def _run(program: Path) -> Java | None:
    try:
        answer = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", answer.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.version = (\d\S*)$", answer.stderr, re.MULTILINE)
    return Java(Path(home[1]), version[1]) if home and version else None


def _how_to_get_java() -> str:
    found = "".join(f"; {java.home} is Java {java.release}" for java in _javas())
    return f"""no Java found: Spark and Kafka need Java {OLDEST_RELEASE} or newer{found}.
Get one with
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless    (or default-jre-headless)
  Fedora, RHEL:    sudo dnf install java-21-openjdk-headless
  Alpine:          sudo apk add openjdk17-jre-headless
  macOS:           brew install openjdk@17
or from https://adoptium.net, and set JAVA_HOME to its folder. Then run `{SETUP_COMMAND}`."""


def main() -> int:
    return exit_code(lambda: print(tried_java().home))


if __name__ == "__main__":
    sys.exit(main())
