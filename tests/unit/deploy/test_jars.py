"""The jars: only the pinned content is accepted."""

import hashlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from deploy.local.jars import fetch, jar_folder
from job.errors import SetupError

JOIN_1 = "org/example/join/1.0/join-1.0.jar"
JOIN_2 = "org/example/join/2.0/join-2.0.jar"
STORE = "org/example/store/3.1/store-3.1.jar"


class Maven:
    """A Maven repository on this machine, and the requests it has received."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[str] = []

    def has(self, path: str, content: bytes) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(content)


class Answers(SimpleHTTPRequestHandler):
    def __init__(self, *arguments: object, maven: Maven) -> None:
        self.maven = maven
        super().__init__(*arguments, directory=str(maven.folder))  # type: ignore[arg-type]  # passed on

    def log_message(self, *_: object) -> None:
        self.maven.requests.append(self.path.lstrip("/"))


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maven]:
    maven = Maven(tmp_path / "maven")
    maven.has(JOIN_1, b"join one")
    maven.has(JOIN_2, b"join two")
    maven.has(STORE, b"store")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Answers, maven=maven)) as server:
        monkeypatch.setenv("MAVEN_CENTRAL", f"http://127.0.0.1:{server.server_port}")
        thread = Thread(target=partial(server.serve_forever, poll_interval=0.01))
        thread.start()
        yield maven
        server.shutdown()
        thread.join()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project that pins two jars for Spark."""
    pin(tmp_path, join_version="1.0", join=b"join one")
    return tmp_path


def pin(root: Path, *, join_version: str, join: bytes) -> None:
    (root / "jars.toml").write_text(f"""
[versions]
join = "{join_version}"
[spark]
"org.example:join:{{join}}" = "{hashlib.sha256(join).hexdigest()}"
"org.example:store:3.1" = "{hashlib.sha256(b"store").hexdigest()}"
[kafka]
""")


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_pinned_jars_are_fetched_into_the_folder_of_their_set(maven: Maven, root: Path) -> None:
    assert ["join-1.0.jar", "store-3.1.jar"] == fetch("spark", root)

    assert root / ".jars" / "spark" == jar_folder("spark", root)
    assert {"join-1.0.jar": b"join one", "store-3.1.jar": b"store"} == files(
        jar_folder("spark", root)
    )
    assert [JOIN_1, STORE] == sorted(maven.requests)


def test_archive_is_pinned_by_classifier_and_extension(maven: Maven, root: Path) -> None:
    maven.has("org/example/app/1.0/app-1.0-all.tar.gz", b"archive")
    with (root / "jars.toml").open("a") as pins:
        pins.write(f"""[apicurio]
"org.example:app:1.0:all@tar.gz" = "{hashlib.sha256(b"archive").hexdigest()}"
""")
    folder = root / ".jars" / "apicurio"
    folder.mkdir(parents=True)
    (folder / "app-0.9-all.tar.gz").write_bytes(b"older")

    assert ["app-1.0-all.tar.gz"] == fetch("apicurio", root)

    assert {"app-1.0-all.tar.gz": b"archive"} == files(folder)


def test_second_fetch_downloads_nothing(maven: Maven, root: Path) -> None:
    fetch("spark", root)
    maven.requests.clear()

    assert [] == fetch("spark", root)

    assert [] == maven.requests


@pytest.mark.usefixtures("maven")
def test_jar_that_was_changed_on_disk_is_fetched_again(root: Path) -> None:
    fetch("spark", root)
    (jar_folder("spark", root) / "store-3.1.jar").write_bytes(b"stale")

    assert ["store-3.1.jar"] == fetch("spark", root)

    assert b"store" == files(jar_folder("spark", root))["store-3.1.jar"]


def test_corrupt_jar_is_refused_by_name_and_not_kept(maven: Maven, root: Path) -> None:
    maven.has(STORE, b"st0re")

    with pytest.raises(SetupError) as refusal:
        fetch("spark", root)

    for fact in ("store-3.1.jar", STORE, sha256(b"store"), sha256(b"st0re")):
        assert fact in str(refusal.value)
    assert ["join-1.0.jar"] == sorted(files(root / ".jars" / "spark"))


def test_jar_that_maven_does_not_have_is_requested_once(maven: Maven, root: Path) -> None:
    (maven.folder / STORE).unlink()

    with pytest.raises(SetupError, match=r"cannot download store-3\.1\.jar from .*404"):
        fetch("spark", root)

    # The server logs a refusal twice: the request and the error.
    assert {JOIN_1, STORE} == set(maven.requests)
    assert 2 == maven.requests.count(STORE)


@pytest.mark.usefixtures("maven")
def test_new_version_replaces_the_old_one_on_the_classpath(root: Path) -> None:
    fetch("spark", root)
    pin(root, join_version="2.0", join=b"join two")

    assert ["join-2.0.jar"] == fetch("spark", root)

    assert {"join-2.0.jar": b"join two", "store-3.1.jar": b"store"} == files(
        jar_folder("spark", root)
    )


@pytest.mark.usefixtures("maven")
def test_folder_that_lacks_a_jar_is_refused_with_the_remedy(root: Path) -> None:
    fetch("spark", root)
    (jar_folder("spark", root) / "join-1.0.jar").unlink()

    with pytest.raises(SetupError, match=r"lacks join-1\.0\.jar: run `make setup`"):
        jar_folder("spark", root)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
