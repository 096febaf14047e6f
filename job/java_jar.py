"""The jar with the compiled Java classes, and whether it was built from these sources.

Standard library only: set-up builds the jar where nothing is installed yet.
"""

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

_JOB = Path(__file__).parent
SOURCES = tuple(_JOB / folder for folder in ("join", "writer", "encoding", "sql"))
"""Folders with the sources: the processor that joins, the writer of transactions, decoders and
encoders of values, and the SQL worker."""
JAVA_JAR = Path("streamjoin") / "streamjoin.jar"
"""Path of the jar in the folder with the jars of Spark's connector."""

CHECKSUM_ENTRY = "META-INF/streamjoin-sources.sha256"
"""File in the jar with the checksum of the sources that it was built from."""


def sources(folders: Sequence[Path] = SOURCES) -> list[Path]:
    files = (file for folder in folders for file in folder.glob("*.java"))
    return sorted(files, key=lambda file: file.name)


def sources_checksum(folders: Sequence[Path] = SOURCES) -> str:
    digest = hashlib.sha256()
    for file in sources(folders):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def checksum_in(jar: Path) -> str | None:
    """Of the sources that the jar was built from. None: there is no such jar."""
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.read(CHECKSUM_ENTRY).decode()
    except (OSError, KeyError, zipfile.BadZipFile):
        return None
