"""Finds the Java that runs Kafka and Spark on this machine. Standard library only.

python -m deploy.local.java     prints its home; without one, prints how to install it and fails
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

from deploy.local.command import exit_code
from job.errors import SetupError

REPOSITORY = Path(__file__).parents[2]
# `make setup` writes the Java that it found to this file.
RECORD = REPOSITORY / ".tools" / "java_home"
SYSTEM_JAVAS = Path("/usr/lib/jvm")
# Spark 4 and Kafka 4's broker are compiled for 17.
OLDEST_RELEASE = 17
# A Java that does not print its version within this time is not usable.
ANSWER_SECONDS = 20


def java_home() -> Path:
    """The home of a Java 17 or newer: JAVA_HOME, the one that set-up found, or any other on this
    machine."""
    too_old = []
    for program in _candidates():
        java = _java_of(program)
        if java and java.release >= OLDEST_RELEASE:
            return java.home
        if java:
            too_old.append(f"{java.home} is Java {java.release}")
    raise SetupError(_how_to_get_java(too_old))


@dataclass(frozen=True)
class Java:
    home: Path
    release: int


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
    """Run the program: a `java` on the PATH may be a link, a wrapper, or a stub. None: it is not
    usable."""
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
    # Java 8 and older report 1.8; from 9 on the number alone.
    release = re.search(
        r"^\s*java\.specification\.version = (?:1\.)?(\d+)$", answer.stderr, re.MULTILINE
    )
    return Java(Path(home[1]), int(release[1])) if home and release else None


def _how_to_get_java(too_old: list[str]) -> str:
    older = f"; {', '.join(too_old)}" if too_old else ""
    return f"""Spark and Kafka need Java {OLDEST_RELEASE} or newer, and none was found{older}.
Get one with
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless    (or default-jre-headless)
  Fedora, RHEL:    sudo dnf install java-21-openjdk-headless
  Alpine:          sudo apk add openjdk17-jre-headless
  macOS:           brew install openjdk@17
or from https://adoptium.net, and set JAVA_HOME to its folder. Then run `make setup` again."""


def main() -> int:
    return exit_code(lambda: print(java_home()))


if __name__ == "__main__":
    sys.exit(main())
