"""The jar with the compiled processor, and whether it was built from these sources.

Standard library only: set-up builds the jar where nothing is installed yet.
"""

import hashlib
from pathlib import Path

SOURCES = Path(__file__).parent
PROCESSOR_JAR = Path("real_time") / "streamjoin-real-time.jar"
"""Its place in the folder with the jars of Spark's connector."""

CHECKSUM_ENTRY = "META-INF/streamjoin-sources.sha256"
"""File in the jar with the checksum of the sources that it was built from."""


def sources(folder: Path = SOURCES) -> list[Path]:
    return sorted(folder.glob("*.java"))


def sources_checksum(folder: Path = SOURCES) -> str:
    digest = hashlib.sha256()
    for file in sources(folder):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
