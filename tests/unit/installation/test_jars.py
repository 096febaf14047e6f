"""The jars: only the pinned content is accepted."""

import hashlib
import os
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from email.message import Message
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError
from urllib.request import Request

import pytest

from job.errors import SetupError
from job.installation import jars
from job.installation.jars import check_job_jars, fetch, jar_folder
from job.java_jar import CHECKSUM_ENTRY, JAVA_JAR, sources_checksum

JOIN_1 = "org/example/join/1.0/join-1.0.jar"
JOIN_2 = "org/example/join/2.0/join-2.0.jar"
STORE = "org/example/store/3.1/store-3.1.jar"


class Maven:
    """A Maven repository on this machine, and the requests it has received."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[str] = []
        self.busy = 0
        """Number of the next requests that are too many."""

    def has(self, path: str, content: bytes) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(content)


class Answers(SimpleHTTPRequestHandler):
    def __init__(self, *arguments: object, maven: Maven) -> None:
        self.maven = maven
        super().__init__(*arguments, directory=str(maven.folder))  # type: ignore[arg-type]  # passed on

    def do_GET(self) -> None:
        if self.maven.busy:
            self.maven.busy -= 1
            self.send_error(429)
        else:
            super().do_GET()

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
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that pins two jars for Spark."""
    pin(tmp_path, join_version="1.0", join=b"join one")
    monkeypatch.setattr(jars, "ROOT", tmp_path)
    monkeypatch.setattr(jars, "jar_root", lambda: tmp_path / ".jars")
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
    assert ["join-1.0.jar", "store-3.1.jar"] == fetch("spark")

    assert root / ".jars" / "spark" == jar_folder("spark")
    assert {"join-1.0.jar": b"join one", "store-3.1.jar": b"store"} == files(jar_folder("spark"))
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

    assert ["app-1.0-all.tar.gz"] == fetch("apicurio")

    assert {"app-1.0-all.tar.gz": b"archive"} == files(folder)


@pytest.mark.usefixtures("root")
def test_second_fetch_downloads_nothing(maven: Maven) -> None:
    fetch("spark")
    maven.requests.clear()

    assert [] == fetch("spark")

    assert [] == maven.requests


@pytest.mark.usefixtures("maven", "root")
def test_jar_that_was_changed_on_disk_is_fetched_again() -> None:
    fetch("spark")
    (jar_folder("spark") / "store-3.1.jar").write_bytes(b"stale")

    assert ["store-3.1.jar"] == fetch("spark")

    assert b"store" == files(jar_folder("spark"))["store-3.1.jar"]


def test_corrupt_jar_is_refused_by_name_and_not_kept(maven: Maven, root: Path) -> None:
    maven.has(STORE, b"st0re")

    with pytest.raises(SetupError) as refusal:
        fetch("spark")

    for fact in ("store-3.1.jar", STORE, sha256(b"store"), sha256(b"st0re")):
        assert fact in str(refusal.value)
    assert ["join-1.0.jar"] == sorted(files(root / ".jars" / "spark"))


@pytest.mark.usefixtures("root")
def test_jar_that_maven_does_not_have_is_requested_once(maven: Maven) -> None:
    (maven.folder / STORE).unlink()

    with pytest.raises(SetupError, match=r"cannot download store-3\.1\.jar from .*404"):
        fetch("spark")

    # The server logs a refusal twice: the request and the error.
    assert {JOIN_1, STORE} == set(maven.requests)
    assert 2 == maven.requests.count(STORE)


@pytest.mark.usefixtures("maven")
def test_new_version_replaces_the_old_one_on_the_classpath(root: Path) -> None:
    fetch("spark")
    pin(root, join_version="2.0", join=b"join two")

    assert ["join-2.0.jar"] == fetch("spark")

    assert {"join-2.0.jar": b"join two", "store-3.1.jar": b"store"} == files(jar_folder("spark"))


@pytest.mark.usefixtures("maven", "root")
def test_folder_that_lacks_a_jar_is_refused_with_the_remedy() -> None:
    fetch("spark")
    (jar_folder("spark") / "join-1.0.jar").unlink()

    with pytest.raises(SetupError, match=r"lacks join-1\.0\.jar: run `make setup`"):
        jar_folder("spark")


@pytest.mark.usefixtures("root")
def test_repository_takes_the_place_of_maven_central(
    maven: Maven, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = os.environ["MAVEN_CENTRAL"]
    monkeypatch.setenv("MAVEN_CENTRAL", "http://localhost:1")

    fetch("spark", repository=f"{mirror}/")

    assert [JOIN_1, STORE] == sorted(maven.requests)


@pytest.mark.usefixtures("root")
def test_login_is_sent_to_the_repository_and_is_in_no_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests: list[Request] = []

    def refused(request: Request, timeout: float) -> None:  # noqa: ARG001  # as urlopen has it
        requests.append(request)
        raise HTTPError(request.full_url, 401, "Unauthorized", Message(), None)

    monkeypatch.setattr(jars.urllib.request, "urlopen", refused)
    with pytest.raises(SetupError, match=r"from https://mirror/maven/org.*401") as refusal:
        fetch("spark", repository="https://ada:hu%2Fsh@mirror/maven")
    assert "ada" not in str(refusal.value)
    assert "hu" not in str(refusal.value)
    assert b64encode(b"ada:hu/sh").decode() in str(requests[0].unredirected_hdrs)
    assert {} == requests[0].headers

    for url, message in (
        ("http://ada:hush@mirror/maven", "mirror has a user .* must begin with https"),
        ("https://ada:hu/sh@mirror/maven", "write / @ . # as %2F"),
        ("ada:hush@mirror/maven", "write / @ . # as %2F"),
    ):
        with pytest.raises(SetupError, match=message) as refusal:
            fetch("spark", repository=url)
        assert "ada" not in str(refusal.value)


@pytest.mark.usefixtures("root")
def test_busy_repository_is_called_again(maven: Maven, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "BUSY_SECONDS", 0)
    maven.busy = 2

    assert ["join-1.0.jar", "store-3.1.jar"] == fetch("spark")
    assert 0 == maven.busy


def test_jars_of_a_folder_are_copied_and_checked(root: Path, tmp_path: Path) -> None:
    copies = tmp_path / "copies" / "spark"
    copies.mkdir(parents=True)
    (copies / "join-1.0.jar").write_bytes(b"join one")
    with pytest.raises(SetupError, match=r"copies lacks store-3\.1\.jar: copy it there from http"):
        fetch("spark", copies=copies.parent)

    (copies / "store-3.1.jar").write_bytes(b"st0re")
    with pytest.raises(SetupError, match=r"store-3\.1\.jar from .*copies.* has sha256"):
        fetch("spark", copies=copies.parent)

    (copies / "zipped").mkdir()
    (copies / "zipped" / "store-3.1.jar").write_bytes(b"store")
    assert ["store-3.1.jar"] == fetch("spark", copies=copies.parent)
    assert ["join-1.0.jar", "store-3.1.jar"] == sorted(files(root / ".jars" / "spark"))


@pytest.fixture
def job_jars(root: Path, maven: Maven) -> Path:  # noqa: ARG001  # has the jars
    """The jars of the job, with compiled classes."""
    fetch("spark")
    folder = root / ".jars" / "spark"
    (folder / JAVA_JAR).parent.mkdir()
    with zipfile.ZipFile(folder / JAVA_JAR, "w") as archive:
        archive.writestr(CHECKSUM_ENTRY, sources_checksum())
    check_job_jars(folder)
    return folder


def test_folder_without_jars_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"does not exist\. Run `make setup`; if STREAMJOIN_JARS"):
        check_job_jars(tmp_path / "absent")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("store-3.1.jar", b"st0re", "has sha256 .* and this version pins"),
        ("store-3.1.jar", None, r"lacks store-3\.1\.jar"),
        (JAVA_JAR, b"", "is not of this version|does not exist"),
    ],
)
def test_jar_of_another_version_is_refused(
    job_jars: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is None:
        (job_jars / name).unlink()
    else:
        (job_jars / name).write_bytes(content)

    with pytest.raises(SetupError, match=f"({message}).* Run `make setup`"):
        check_job_jars(job_jars)


@pytest.mark.parametrize("name", ["", "store-3.1.jar", JAVA_JAR, JAVA_JAR.parent])
def test_jars_that_others_can_write_are_refused(job_jars: Path, name: str) -> None:
    (job_jars / name).chmod(0o777)

    with pytest.raises(SetupError, match=f"other users can write .* `chmod -R go-w {job_jars}"):
        check_job_jars(job_jars)


def test_further_jars_are_allowed(job_jars: Path) -> None:
    (job_jars / "hadoop-aws.jar").write_bytes(b"client of S3")

    check_job_jars(job_jars)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
