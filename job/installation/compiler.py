"""Compiles the Java classes of the job: the processor that joins, and the decoders and
encoders of values. Standard library only.

    python -m job.installation.compiler [--spark JARS]

Uses the compiler that jars.toml pins, because a Java runtime contains none. The jar is the same on
every machine.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from job.errors import SetupError
from job.installation.clone import IN_CLONE, ROOT
from job.installation.exit_code import exit_code
from job.installation.folders import replacing, spark_jars
from job.installation.jars import jar_folder
from job.installation.java import OLDEST_RELEASE, java_home
from job.java_jar import (
    CHECKSUM_ENTRY,
    JAVA_JAR,
    SOURCES,
    checksum_in,
    sources,
    sources_checksum,
)

COMPILE_SECONDS = 300
# The oldest time that a zip file can hold.
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def provide_classes(jars: Path) -> Path:
    """Write the jar below the folder `jars`: compiled from the sources of the clone, or the one
    that an installed package contains. Returns its path."""
    return build(jars) if IN_CLONE else _copied(ROOT / JAVA_JAR.name, jars / JAVA_JAR)


def _copied(source: Path, jar: Path) -> Path:
    if checksum_in(jar) != sources_checksum():
        jar.parent.mkdir(mode=0o700, exist_ok=True)
        with replacing(jar) as part:
            shutil.copyfile(source, part)
    return jar


def build(jars: Path, *, folders: Sequence[Path] = SOURCES, spark: Path | None = None) -> Path:
    """Write the jar below the folder `jars`, unless it was built from these sources; its path.

    `folders`: the folders with the sources. `spark`: the folder with Spark's jars. None: that of
    pyspark. Raises SetupError if the classes do not compile.
    """
    jar = jars / JAVA_JAR
    checksum = sources_checksum(folders)
    if checksum_in(jar) == checksum:
        return jar
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="streamjoin-") as classes:
        compile_java(sources(folders), Path(classes), [spark or spark_jars(), jars])
        with replacing(jar) as part:
            _write(part, Path(classes), checksum)
    return jar


def compile_java(files: Sequence[Path], classes: Path, libraries: Sequence[Path]) -> None:
    """Write the classes into the folder `classes`. `libraries`: folders with jars."""
    used = sorted(jar for folder in libraries for jar in folder.glob("*.jar"))
    (compiler,) = jar_folder("compiler").glob("ecj-*.jar")
    done = subprocess.run(
        [
            java_home() / "bin" / "java",
            *("-jar", compiler, f"-{OLDEST_RELEASE}", "-nowarn", "-encoding", "UTF-8"),
            *("-classpath", ":".join(map(str, used))),
            *("-d", classes),
            *files,
        ],
        capture_output=True,
        text=True,
        timeout=COMPILE_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise SetupError(f"the Java classes do not compile:\n{done.stdout}{done.stderr}")


def _write(jar: Path, classes: Path, checksum: str) -> None:
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(CHECKSUM_ENTRY, _NO_TIME), checksum)
        for file in sorted(classes.rglob("*.class")):
            name = file.relative_to(classes).as_posix()
            archive.writestr(zipfile.ZipInfo(name, _NO_TIME), file.read_bytes())


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile the Java classes of the job.")
    parser.add_argument("--spark", type=Path, help="the folder with Spark's jars")
    spark = parser.parse_args().spark
    return exit_code(lambda: print(f"  {build(jar_folder('spark'), spark=spark).name}"))


if __name__ == "__main__":
    sys.exit(main())
