"""Which Java this machine runs Kafka and Spark with. Standard library only.

python -m deploy.local.java            prints its home, or says how to get one and fails
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

REPOSITORY = Path(__file__).parents[2]
# Where `make setup` notes the Java it found.
RECORD = REPOSITORY / ".tools" / "java_home"
SYSTEM_JAVAS = Path("/usr/lib/jvm")
# Spark 4 and Kafka 4's broker are compiled for 17.
OLDEST_RELEASE = 17
# A Java that does not tell its version in this time is not one to build on.
ANSWER_SECONDS = 20


def java_home() -> Path:
    """The home of a Java 17 or newer: JAVA_HOME's, the one set-up noted, or any other here."""
    too_old = []
    for program in _candidates():
        java = _ask(program)
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
    if told := os.environ.get("JAVA_HOME"):
        yield Path(told) / "bin" / "java"
    if RECORD.exists():
        yield Path(RECORD.read_text().strip()) / "bin" / "java"
    if found := shutil.which("java"):
        yield Path(found)
    # By name, so that the same machine always gets the same one.
    yield from sorted(SYSTEM_JAVAS.glob("*/bin/java"))


@cache
def _ask(program: Path) -> Java | None:
    """Ask the program itself: a `java` on the PATH may be a link, a wrapper, or an empty shell."""
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
    # Java 8 and older call themselves 1.8; from 9 on it is the number alone.
    release = re.search(
        r"^\s*java\.specification\.version = (?:1\.)?(\d+)$", answer.stderr, re.MULTILINE
    )
    return Java(Path(home[1]), int(release[1])) if home and release else None


def _how_to_get_java(too_old: list[str]) -> str:
    found = f"; {', '.join(too_old)}" if too_old else ""
    return f"""Spark and Kafka need Java {OLDEST_RELEASE} or newer, and there is none here{found}.
Get one with
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless    (or default-jre-headless)
  Fedora, RHEL:    sudo dnf install java-21-openjdk-headless
  Alpine:          sudo apk add openjdk17-jre-headless
  macOS:           brew install openjdk@17
or from https://adoptium.net, and set JAVA_HOME to its folder. Then run `make setup` again."""


def main() -> int:
    try:
        print(java_home())
    except SetupError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
