"""Downloads the jars of jars.toml from Maven Central and checks them. Standard library only: it
also runs before anything is installed.

    python -m deploy.local.jars           downloads the jars that every machine needs
    python -m deploy.local.jars hdfs      downloads one set
"""

import argparse
import hashlib
import http.client
import os
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from deploy.local.command import exit_code
from job.errors import SetupError

JarSet = Literal[
    "spark", "kafka", "compiler", "hdfs", "s3", "apicurio", "kafka_streams", "flink", "profiler"
]

# The tests and benchmarks that need the other sets download them.
NEEDED_BY_ALL: tuple[JarSet, ...] = ("spark", "kafka", "compiler")

REPOSITORY = Path(__file__).parents[2]
MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
# A download is repeated after a network error, not if the jar does not exist.
ATTEMPTS = 3
SILENCE_SECONDS = 30
# Hides the round trips of many small jars without many connections to Maven Central.
PARALLEL_DOWNLOADS = 8


def fetch(jar_set: JarSet, root: Path = REPOSITORY) -> list[str]:
    """Make .jars/<jar_set>/ contain exactly the pinned jars. Returns the downloaded names.

    Raises SetupError if a jar cannot be downloaded or has another checksum.
    """
    folder = _folder(jar_set, root)
    folder.mkdir(parents=True, exist_ok=True)
    pinned = _pinned(jar_set, root)
    _remove_strays(folder, keep={jar.file_name for jar in pinned})
    missing = [jar for jar in pinned if not _is_there(jar, folder)]
    with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
        for _ in pool.map(lambda jar: _download(jar, folder), missing):
            pass
    return [jar.file_name for jar in missing]


def jar_folder(jar_set: JarSet, root: Path = REPOSITORY) -> Path:
    """The folder with the jars of a set. It checks names only: `fetch` has checked the contents."""
    folder = _folder(jar_set, root)
    absent = [
        jar.file_name for jar in _pinned(jar_set, root) if not (folder / jar.file_name).exists()
    ]
    if absent:
        raise SetupError(f"{folder} lacks {', '.join(absent)}: run `{_remedy(jar_set)}`")
    return folder


def _remedy(jar_set: JarSet) -> str:
    return "make setup" if jar_set in NEEDED_BY_ALL else f"python -m deploy.local.jars {jar_set}"


@dataclass(frozen=True)
class Jar:
    group: str
    artifact: str
    version: str
    sha256: str
    ending: str = ".jar"
    """With the classifier if there is one: `-all.tar.gz`."""

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}{self.ending}"

    @property
    def url(self) -> str:
        mirror = os.environ.get("MAVEN_CENTRAL", MAVEN_CENTRAL).rstrip("/")
        group = self.group.replace(".", "/")
        return f"{mirror}/{group}/{self.artifact}/{self.version}/{self.file_name}"


def _folder(jar_set: JarSet, root: Path) -> Path:
    return root / ".jars" / jar_set


def _pinned(jar_set: JarSet, root: Path) -> list[Jar]:
    pins = tomllib.loads((root / "jars.toml").read_text(encoding="utf-8"))
    versions = pins["versions"]
    return [
        _jar(coordinate.format(**versions), sha256) for coordinate, sha256 in pins[jar_set].items()
    ]


def _jar(coordinate: str, sha256: str) -> Jar:
    """group:artifact:version, or group:artifact:version:classifier@extension."""
    group, artifact, version, *archive = coordinate.split(":")
    if not archive:
        return Jar(group, artifact, version, sha256)
    classifier, extension = archive[0].split("@")
    return Jar(group, artifact, version, sha256, f"-{classifier}.{extension}")


def _remove_strays(folder: Path, keep: Iterable[str]) -> None:
    # The folder is a classpath: two versions of one jar cause misleading errors.
    for stray in [*folder.glob("*.jar"), *folder.glob("*.tar.gz")]:
        if stray.name not in keep:
            stray.unlink()


def _is_there(jar: Jar, folder: Path) -> bool:
    # Hashing all 54 MB takes a tenth of a second: cheaper than the analysis of a stale file.
    path = folder / jar.file_name
    return path.exists() and _sha256(path.read_bytes()) == jar.sha256


def _download(jar: Jar, folder: Path) -> None:
    content = _content(jar)
    if (actual := _sha256(content)) != jar.sha256:
        raise SetupError(
            f"{jar.file_name} from {jar.url} has sha256 {actual}, and jars.toml pins "
            f"{jar.sha256}. The download was discarded. If MAVEN_CENTRAL is set, check that mirror"
        )
    # Downloaded under another name and renamed: an interrupted set-up leaves no incomplete jar.
    part = folder / f".{jar.file_name}.{os.getpid()}"
    part.write_bytes(content)
    part.replace(folder / jar.file_name)


def _content(jar: Jar) -> bytes:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(jar.url, timeout=SILENCE_SECONDS) as answer:  # noqa: S310  # the address is ours or the user's own mirror
                content: bytes = answer.read()
                return content
        except (OSError, http.client.HTTPException) as error:
            gone = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if gone or attempt == ATTEMPTS:
                raise SetupError(
                    f"cannot download {jar.file_name} from {jar.url}: {error}. Check the "
                    "network, or set MAVEN_CENTRAL to a mirror"
                ) from error
    raise AssertionError("unreachable")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> int:
    sets = get_args(JarSet)
    parser = argparse.ArgumentParser(description="Fetch the jars pinned in jars.toml.")
    parser.add_argument("sets", nargs="*", metavar="set", help=f"one of: {', '.join(sets)}")
    wanted = parser.parse_args().sets or NEEDED_BY_ALL
    if unknown := set(wanted) - set(sets):
        parser.error(f"unknown set: {', '.join(sorted(unknown))}")
    return exit_code(lambda: _fetch_all(wanted))


def _fetch_all(jar_sets: Iterable[JarSet]) -> None:
    for jar_set in jar_sets:
        if downloaded := fetch(jar_set):
            print(f"  {len(downloaded)} jars for {jar_set}")


if __name__ == "__main__":
    sys.exit(main())
