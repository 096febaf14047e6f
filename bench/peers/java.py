"""Peers in Java: one source file each, compiled here when it has changed, run in one JVM."""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.kafka import LOG_SETTINGS
from job.errors import SetupError
from job.installation.jars import JarSet, fetch, jar_folder
from job.installation.java import java_home
from job.plan.tuning import SINK_OPTIONS

_CLASSES = Path(__file__).parents[2] / "data" / "bench" / "peers"
# On an idle machine it takes 2 s.
_COMPILE_SECONDS = 120.0
# Enough for Flink with its state on the heap.
_HEAP = "-Xmx4g"

# The producer settings of Streamjoin (with its reasons), by the names of Kafka's Java client.
PRODUCER_SETTINGS: Mapping[str, str] = {
    name.removeprefix("kafka."): value for name, value in SINK_OPTIONS.items()
}


@dataclass(frozen=True)
class JavaProgram:
    source: Path
    """Its only class has the file's name, and a `main`."""
    jar_sets: Sequence[JarSet]
    jvm_options: Sequence[str] = ()

    def prepare(self) -> None:
        for jar_set in self.jar_sets:
            fetch(jar_set)
        if not self._classes.exists():
            self._compile()

    def command(self, *arguments: str | Path) -> list[str | Path]:
        return [
            java_home() / "bin" / "java",
            _HEAP,
            *self.jvm_options,
            f"-Dlog4j2.configurationFile={LOG_SETTINGS}",
            *("-cp", f"{self._classes}:{self._jars}"),
            self.source.stem,
            *arguments,
        ]

    @property
    def _jars(self) -> str:
        return ":".join(f"{jar_folder(jar_set)}/*" for jar_set in self.jar_sets)

    @property
    def _classes(self) -> Path:
        """Named after the hash of all inputs of the classes: another source has another folder."""
        jars = [jar.name for jar_set in self.jar_sets for jar in jar_folder(jar_set).iterdir()]
        made_from = self.source.read_bytes() + "\n".join(sorted(jars)).encode()
        return _CLASSES / f"{self.source.parent.name}-{hashlib.sha256(made_from).hexdigest()[:12]}"

    def _compile(self) -> None:
        javac = java_home() / "bin" / "javac"
        if not os.access(javac, os.X_OK):
            raise SetupError(_how_to_get_javac(javac))
        _CLASSES.mkdir(parents=True, exist_ok=True)
        # Compiled under another name and renamed: an interrupted compiler leaves no incomplete
        # program.
        with tempfile.TemporaryDirectory(dir=_CLASSES, prefix="new-") as unfinished:
            classes = Path(unfinished) / "classes"
            answer = subprocess.run(
                [javac, "-encoding", "UTF-8", "-cp", self._jars, "-d", classes, self.source],
                capture_output=True,
                text=True,
                timeout=_COMPILE_SECONDS,
                check=False,
            )
            if answer.returncode:
                raise SetupError(f"{self.source} cannot be compiled:\n{answer.stderr}")
            classes.rename(self._classes)


def properties(settings: Mapping[str, object]) -> str:
    """In the format of java.util.Properties."""
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _how_to_get_javac(javac: Path) -> str:
    return f"""The benchmark compiles its peers, and {javac} does not exist.
Get a JDK with
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jdk-headless    (or default-jdk-headless)
  Fedora, RHEL:    sudo dnf install java-21-openjdk-devel
  Alpine:          sudo apk add openjdk17-jdk
  macOS:           brew install openjdk@17
or from https://adoptium.net, and set JAVA_HOME to its folder."""
