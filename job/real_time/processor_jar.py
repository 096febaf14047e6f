"""The jar with the compiled processor, and whether it was built from these sources.

Standard library only: set-up builds the jar where nothing is installed yet.
"""

import hashlib
import zipfile
from collections.abc import Iterable
from pathlib import Path

from job.errors import SetupError

SOURCES = Path(__file__).parent
JAR = Path("real_time") / "streamjoin-real-time.jar"
"""In the folder with the jars of Spark's connector, in a folder of its own: the class path is that
folder, and the archive of classes fits a class path that is only longer at its end."""

# In the jar, with the checksum of the sources that it was built from.
CHECKSUM_ENTRY = "META-INF/streamjoin-sources.sha256"


def checked_jar(jars: Path) -> Path:
    """The jar below the folder `jars`; SetupError unless it was built from these sources."""
    jar = jars / JAR
    try:
        with zipfile.ZipFile(jar) as archive:
            built_from = archive.read(CHECKSUM_ENTRY).decode()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise SetupError(
            f"the processor of the real-time engine is not in {jar}: run `make setup`"
        ) from error
    if built_from != sources_checksum():
        raise SetupError(
            f"{jar} was built from other sources than those in {SOURCES}: run `make setup`"
        )
    return jar


def sources(folder: Path = SOURCES) -> list[Path]:
    return sorted(folder.glob("*.java"))


def sources_checksum(folder: Path = SOURCES) -> str:
    return _checksum(sources(folder))


def _checksum(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
