"""Downloads the jars of jars.toml from Maven Central and checks them. Standard library only: it
also runs before anything is installed.

    python -m job.installation.jars spark compiler      downloads two sets
"""

import argparse
import base64
import hashlib
import http.client
import os
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import unquote

from job.errors import SetupError
from job.installation.clone import COMMAND, IN_CLONE, JARS_REMEDY, ROOT, SETUP_COMMAND
from job.installation.exit_code import exit_code
from job.installation.folders import (
    check_exists,
    check_writers,
    create_folder,
    jar_root,
    replacing,
)
from job.java_jar import JAVA_JAR, checksum_in, sources_checksum

JarSet = Literal[
    "spark",
    "kafka",
    "compiler",
    "hdfs",
    "s3",
    "msk",
    "apicurio",
    "kafka_streams",
    "flink",
    "profiler",
]

MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
# A download is repeated after a network error, not if the jar does not exist.
ATTEMPTS = 3
_TOO_MANY_REQUESTS = 429
BUSY_SECONDS = 5
"""Pause after the first answer that there are too many requests; twice that after the second."""
SILENCE_SECONDS = 30
# Hides the round trips of many small jars without many connections to Maven Central.
PARALLEL_DOWNLOADS = 8


def fetch(
    jar_set: JarSet,
    *,
    repository: str | None = None,
    copies: Path | None = None,
    on_jar: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Make the folder of the set contain exactly the pinned jars. Returns the names of the new
    ones.

    `repository`: URL of a Maven repository, which can have a user name and password for it. None:
    MAVEN_CENTRAL, else Maven Central. `copies`: a folder from which the jars are copied instead, at
    any depth. `on_jar` is called with the name of each jar that is new. Jars that are complete
    stay, also those of an interrupted call.

    Raises SetupError if a jar cannot be downloaded or has another checksum.
    """
    folder = jar_root() / jar_set
    create_folder(folder)
    pinned = pinned_jars(jar_set)
    _remove_strays(folder, keep={jar.file_name for jar in pinned})
    missing = [jar for jar in pinned if not _is_there(jar, folder)]
    source = _repository(repository or os.environ.get("MAVEN_CENTRAL", MAVEN_CENTRAL))

    def add(jar: Jar) -> None:
        if copies is None:
            _write(jar, _downloaded(jar, source), source.url(jar), folder)
        else:
            file = _copy_of(jar, copies)
            _write(jar, file.read_bytes(), str(file), folder)
        on_jar(jar.file_name)

    with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
        for _ in pool.map(add, missing):
            pass
    return [jar.file_name for jar in missing]


def missing_jars(jar_set: JarSet) -> list[str]:
    """Names of the jars that `fetch` would add."""
    folder = jar_root() / jar_set
    return [jar.file_name for jar in pinned_jars(jar_set) if not _is_there(jar, folder)]


def jar_folder(jar_set: JarSet) -> Path:
    """The folder with the jars of a set. It checks names only: `fetch` has checked the contents."""
    folder = jar_root() / jar_set
    absent = [
        jar.file_name for jar in pinned_jars(jar_set) if not (folder / jar.file_name).exists()
    ]
    if absent:
        raise SetupError(f"{folder} lacks {', '.join(absent)}: run `{_remedy(jar_set)}`")
    return folder


def check_job_jars(folder: Path) -> None:
    """Raises SetupError unless the folder has the pinned jars and the compiled classes of this
    version, and no other user can write it. Further jars are allowed."""
    check_exists(folder)
    check_writers(folder)
    for jar in pinned_jars("spark"):
        path = folder / jar.file_name
        if not path.exists():
            raise SetupError(f"{folder} lacks {jar.file_name}. {JARS_REMEDY}")
        if (actual := _sha256(path.read_bytes())) != jar.sha256:
            raise SetupError(
                f"{path} has sha256 {actual}, and this version pins {jar.sha256}. {JARS_REMEDY}"
            )
    if (built_from := checksum_in(folder / JAVA_JAR)) != sources_checksum():
        problem = "does not exist" if built_from is None else "is not of this version"
        raise SetupError(f"{folder / JAVA_JAR} {problem}. {JARS_REMEDY}")


def _remedy(jar_set: JarSet) -> str:
    return SETUP_COMMAND if jar_set in sets_of_all() else f"{COMMAND} setup {jar_set}"


def sets_of_all() -> tuple[JarSet, ...]:
    """The sets that every command or the local broker needs. Tests, benchmarks and checkpoints on
    S3 need the others."""
    return ("spark", "kafka", "compiler") if IN_CLONE else ("spark",)


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
    def path(self) -> str:
        """In a Maven repository."""
        group = self.group.replace(".", "/")
        return f"{group}/{self.artifact}/{self.version}/{self.file_name}"


def pinned_jars(jar_set: JarSet) -> list[Jar]:
    pins = tomllib.loads((ROOT / "jars.toml").read_text(encoding="utf-8"))
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


def _copy_of(jar: Jar, copies: Path) -> Path:
    found = sorted(copies.rglob(jar.file_name))
    if not found:
        raise SetupError(
            f"{copies} lacks {jar.file_name}: copy it there from {MAVEN_CENTRAL}/{jar.path}"
        )
    right = (file for file in found if _sha256(file.read_bytes()) == jar.sha256)
    return next(right, found[0])


def _write(jar: Jar, content: bytes, source: str, folder: Path) -> None:
    if (actual := _sha256(content)) != jar.sha256:
        raise SetupError(
            f"{jar.file_name} from {source} has sha256 {actual}, and jars.toml pins "
            f"{jar.sha256}. It was discarded. Check that copy or that repository"
        )
    with replacing(folder / jar.file_name) as part:
        part.write_bytes(content)


@dataclass(frozen=True)
class _Repository:
    address: str
    """Without user name and password, so that no message has them."""
    login: str
    """`user:password`. Empty: none."""

    def url(self, jar: Jar) -> str:
        return f"{self.address.rstrip('/')}/{jar.path}"

    def request(self, jar: Jar) -> urllib.request.Request:
        request = urllib.request.Request(self.url(jar))  # noqa: S310  # see _downloaded
        if self.login:
            basic = base64.b64encode(self.login.encode()).decode()
            # A server to which the repository redirects does not receive it.
            request.add_unredirected_header("Authorization", f"Basic {basic}")
        return request


def _repository(url: str) -> _Repository:
    """Raises SetupError, without the URL, if it is not clear what its user name and password are,
    or if they would be sent in plain text."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    login, _, host = authority.rpartition("@")
    if any(character in f"{scheme}{login}{path}" for character in "@?#"):
        raise SetupError(
            "the URL of the Maven repository has one of the characters @ ? # after its user name: "
            "in the user name and the password write / @ ? # as %2F %40 %3F %23"
        )
    if login and scheme != "https":
        raise SetupError(
            f"the URL of the Maven repository {host} has a user name or password: it must begin "
            "with https://, so that nobody reads them"
        )
    user, _, password = login.partition(":")
    address = f"{scheme}{separator}{host}{slash}{path}"
    return _Repository(address, f"{unquote(user)}:{unquote(password)}" if login else "")


def _downloaded(jar: Jar, repository: _Repository) -> bytes:
    file_name, url = jar.file_name, repository.url(jar)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            request = repository.request(jar)
            with urllib.request.urlopen(request, timeout=SILENCE_SECONDS) as answer:  # noqa: S310  # the address is ours or the user's own mirror
                content: bytes = answer.read()
                return content
        except (OSError, ValueError, http.client.HTTPException) as error:
            status = error.code if isinstance(error, urllib.error.HTTPError) else None
            gone = status is not None and status < 500 and status != _TOO_MANY_REQUESTS
            if gone or isinstance(error, ValueError) or attempt == ATTEMPTS:
                raise SetupError(
                    f"cannot download {file_name} from {url}: {error}. Check the network. In a "
                    f"closed network, `{COMMAND} setup --repository URL` downloads from a mirror, "
                    "and `--from FOLDER` copies the jars from a folder"
                ) from error
            if status == _TOO_MANY_REQUESTS:
                time.sleep(attempt * BUSY_SECONDS)
    raise AssertionError("unreachable")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> int:
    sets = get_args(JarSet)
    parser = argparse.ArgumentParser(description="Download jars that jars.toml pins.")
    parser.add_argument("sets", nargs="+", choices=sets, metavar="set", help=", ".join(sets))
    wanted: list[JarSet] = parser.parse_args().sets
    return exit_code(lambda: print(*(name for jar_set in wanted for name in fetch(jar_set))))


if __name__ == "__main__":
    sys.exit(main())
