"""Where the jars are: `.jars` in a clone of the repository, else the cache of the user. Standard
library only."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from job.errors import SetupError
from job.installation.clone import IN_CLONE, JARS_REMEDY, ROOT, SETUP_COMMAND
from job.installation.java import find_java

_PRIVATE = 0o700
_OTHERS_CAN_WRITE = 0o002
_GROUP_CAN_WRITE = 0o020
_ROOT_USER = 0


def cache_folder() -> Path:
    """The folder that `streamjoin setup` creates, only for this user."""
    # The XDG specification ignores a path that is not absolute.
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache_home.is_absolute():
        # Not Path.home(): a user of a container may have none, and needs none with STREAMJOIN_JARS.
        cache_home = Path(os.path.expanduser("~/.cache"))  # noqa: PTH111
    return cache_home / "streamjoin"


def jar_root() -> Path:
    """The folder with a folder for each set of jars. In the cache it is named after the content of
    jars.toml and the version of Java, which must fit the class archive."""
    if IN_CLONE:
        return ROOT / ".jars"
    java = find_java()
    return cache_folder() / f"{_pins_hash()}-java-{java.version if java else 'missing'}"


@cache
def _pins_hash() -> str:
    return hashlib.sha256((ROOT / "jars.toml").read_bytes()).hexdigest()[:12]


def job_jars() -> Path:
    """The folder with the jars of the job, if STREAMJOIN_JARS is not set."""
    return jar_root() / "spark"


def check_exists(folder: Path) -> None:
    """`folder`: with the jars of the job. SetupError names what the cache has instead."""
    if folder.is_dir():
        return
    others = sorted(cache_folder().glob("*-java-*")) if folder == job_jars() else []
    found = f"; {', '.join(map(str, others))} is of another Java or version" if others else ""
    raise SetupError(f"{folder}, with the jars of the job, does not exist{found}. {JARS_REMEDY}")


def spark_jars() -> Path:
    """The folder with the jars of PySpark and Hadoop. Does not import PySpark."""
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    return Path(pyspark.origin).parent / "jars"


def create_folder(folder: Path) -> None:
    """Create the folder of a set of jars. In the cache, only this user can read and write it."""
    if IN_CLONE:
        folder.mkdir(parents=True, exist_ok=True)
        return
    for each in (cache_folder(), folder.parent, folder):
        each.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        if each.stat().st_uid != os.geteuid():
            raise SetupError(
                f"{each} belongs to another user, who could replace the jars: set XDG_CACHE_HOME "
                "to a folder of this user"
            )
        with suppress(PermissionError):  # of a file system without modes
            each.chmod(_PRIVATE)
        if each.stat().st_mode & (_OTHERS_CAN_WRITE | _GROUP_CAN_WRITE):
            raise SetupError(
                f"other users can write {each}, and chmod has no effect on its file system: set "
                "XDG_CACHE_HOME to a folder on another one, or STREAMJOIN_JARS to a folder there "
                "that has the jars already"
            )


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """The path of a new file that takes the place of `file` at the end: an interrupted set-up
    leaves no incomplete file, and two at the same time do not write the same one."""
    with tempfile.TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as folder:
        part = Path(folder) / file.name
        yield part
        part.replace(file)


def check_writers(folder: Path) -> None:
    """Raises SetupError if other users could replace what a JVM loads from the folder."""
    is_cache = folder.is_relative_to(cache_folder())
    # A clone has the owner of the code that reads this.
    is_of_clone = IN_CLONE and folder.is_relative_to(ROOT)
    owners = {os.geteuid()} if is_cache else {os.geteuid(), _ROOT_USER}
    refused = _OTHERS_CAN_WRITE | (_GROUP_CAN_WRITE if is_cache else 0)
    parents = [cache_folder(), folder.parent] if is_cache else []
    for path in (*parents, folder, *_loaded(folder)):
        try:
            status = path.stat()
        except FileNotFoundError:  # another process has replaced or removed it
            continue
        if status.st_mode & refused:
            raise SetupError(
                f"other users can write {path}, and could replace the code that this command "
                f"runs: check its content, then run `chmod -R go-w {path}`. If chmod has no effect "
                "on this file system, copy the folder to another one, and set STREAMJOIN_JARS to "
                "the copy"
            )
        if not is_of_clone and status.st_uid not in owners:
            remedy = (
                f"set XDG_CACHE_HOME to a folder of this user, then run `{SETUP_COMMAND}`"
                if is_cache
                else f"set STREAMJOIN_JARS to a copy of {folder} that belongs to this user or root"
            )
            raise SetupError(
                f"{path} belongs to another user, who could replace the code that this command "
                f"runs: {remedy}"
            )


def _loaded(folder: Path) -> Iterator[Path]:
    for name, folders, files in os.walk(folder):
        for path in (Path(name) / each for each in (*folders, *files)):
            if path.suffix in {"", ".jar", ".jsa"}:
                yield path
