"""Slow and ambiguous requests and HEAD, over real connections."""

import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
import uvicorn

from service.__main__ import listening_socket
from service.app import create_app
from service.http_protocol import TimedProtocol
from tests.polling import wait_until
from tests.unit.service.answers import all_answers
from tests.unit.service.builders import SmallJob, batch, hung_job, serving, status_after
from tests.unit.service.calls import PATIENCE_SECONDS, settings

REQUEST_SECONDS = 0.3
HALF_HEADERS = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: "
HALF_BODY = (
    b"POST /v1/validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/yaml\r\n"
    b"Content-Length: 100\r\n\r\nname: x"
)
GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Connection:
    """A connection to the service, byte by byte."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        self._deadline = time.monotonic() + PATIENCE_SECONDS

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answers(self) -> bytes:
        """All bytes until the service closes the connection."""
        received = b""
        while more := self._socket.recv(65_536):
            received += more
        return received

    def answer(self, *, has_body: bool = True) -> bytes:
        """The next response, complete."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._more()
        headers, _, body = received.partition(b"\r\n\r\n")
        [size] = [
            int(line.partition(b":")[2])
            for line in headers.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        ]
        while has_body and len(body) < size:
            body += self._more()
        return headers + b"\r\n\r\n" + body

    def _more(self) -> bytes:
        more = self._socket.recv(65_536)
        assert more, "the connection was closed"
        return more

    def is_silent_for(self, seconds: float) -> bool:
        return not select.select([self._socket], [], [], seconds)[0]

    def drip(self) -> bytes:
        """Send a byte at a time until the service closes the connection; returns its bytes."""
        received = b""
        while time.monotonic() < self._deadline:
            # The byte may meet a closed connection while the answer is still to be read.
            with suppress(ConnectionError):
                self._socket.sendall(b"x")
            if self.is_silent_for(REQUEST_SECONDS / 10):
                continue
            try:
                more = self._socket.recv(65_536)
            except ConnectionError:
                return received
            if not more:
                return received
            received += more
        raise AssertionError("the connection was not closed")


@pytest.fixture
def job(path: Path) -> Iterator[SmallJob]:
    with serving(path, status_after(batch())) as started:
        started.answers.update(all_answers())
        yield started


@pytest.fixture
def port(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(TimedProtocol, "request_seconds", REQUEST_SECONDS)
    app = create_app(settings(path, job_answer_seconds=3 * REQUEST_SECONDS))
    server = uvicorn.Server(uvicorn.Config(app, http=TimedProtocol, log_config=None))
    with closing(listening_socket("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        wait_until(lambda: server.started, PATIENCE_SECONDS, "the service serves")
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def many_files() -> Iterator[None]:
    """Both ends of all connections are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def connection(port: int) -> Iterator[Connection]:
    with closing(Connection(port)) as opened:
        yield opened


@pytest.fixture
def patient(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """To a service that waits long for a request: for tests without slow requests."""
    monkeypatch.setattr(TimedProtocol, "request_seconds", PATIENCE_SECONDS)
    with closing(Connection(port)) as opened:
        yield opened


# --- Slow requests


@pytest.mark.parametrize("half", [HALF_HEADERS, HALF_BODY], ids=["headers", "body"])
def test_half_a_request_gets_408_and_is_closed(
    half: bytes, connection: Connection, job: SmallJob
) -> None:
    connection.send(half)
    answer = connection.answers()

    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"the request did not arrive completely within 0.3 s" in answer
    assert job.last_request is None


@pytest.mark.parametrize("half", [HALF_HEADERS, HALF_BODY], ids=["headers", "body"])
def test_dripping_bytes_do_not_extend_the_limit(
    half: bytes, connection: Connection, job: SmallJob
) -> None:
    connection.send(half.replace(b"Length: 100", b"Length: 60000"))

    assert connection.drip().startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert job.last_request is None


def test_connection_without_a_request_is_closed(connection: Connection) -> None:
    assert b"HTTP/1.1 200" not in connection.answers()


def test_body_that_continues_after_the_response_is_ended(connection: Connection) -> None:
    connection.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n")

    assert connection.drip().startswith(b"HTTP/1.1 200 OK\r\n")


def test_half_a_request_after_a_complete_one_is_ended(connection: Connection) -> None:
    connection.send(GET % b"/livez" + HALF_HEADERS)
    answers = connection.answers()

    assert 1 == answers.count(b"HTTP/1.1 200 OK\r\n")
    assert 1 == answers.count(b"HTTP/1.1 408 Request Timeout\r\n")


@pytest.mark.usefixtures("job")
def test_idle_connection_accepts_another_request(connection: Connection) -> None:
    connection.send(GET % b"/livez")
    assert connection.answer().startswith(b"HTTP/1.1 200 OK\r\n")
    assert connection.is_silent_for(2 * REQUEST_SECONDS)

    connection.send(GET % b"/v1/query")
    assert connection.answer().startswith(b"HTTP/1.1 200 OK\r\n")


def test_response_can_take_longer_than_a_request(path: Path, connection: Connection) -> None:
    with hung_job(path):
        connection.send(GET % b"/readyz")

        assert connection.answer().startswith(b"HTTP/1.1 503 ")


@pytest.mark.usefixtures("job", "many_files")
def test_500_half_sent_requests_delay_no_probe_and_are_closed(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimedProtocol, "request_seconds", 10 * REQUEST_SECONDS)
    with ExitStack() as opened:
        half_sent = [opened.enter_context(closing(Connection(port))) for _ in range(500)]
        for connection in half_sent:
            connection.send(HALF_HEADERS)

        for path_ in (b"/livez", b"/v1/query"):
            other = opened.enter_context(closing(Connection(port)))
            other.send(GET % path_)
            assert other.answer().startswith(b"HTTP/1.1 200 OK\r\n")

        for connection in half_sent:
            assert connection.answers().startswith(b"HTTP/1.1 408 Request Timeout\r\n")


# --- Ambiguous length


def test_content_length_with_transfer_encoding_is_refused_and_closed(
    patient: Connection, job: SmallJob
) -> None:
    patient.send(
        b"POST /v1/validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/yaml\r\n"
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET % b"/livez"
    )
    answers = patient.answers()

    assert answers.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"both Content-Length and Transfer-Encoding" in answers
    assert 1 == answers.count(b"HTTP/1.1 ")
    assert job.last_request is None


def test_chunked_body_is_read(patient: Connection, job: SmallJob) -> None:
    patient.send(
        b"POST /v1/validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/yaml\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n7\r\nname: x\r\n0\r\n\r\n"
    )

    assert patient.answer().startswith(b"HTTP/1.1 200 OK\r\n")
    assert "name: x" == job.last_request.spec


# --- HEAD


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    "path_", [b"/livez", b"/readyz", b"/metrics", b"/", b"/v1/query", b"/nothing"]
)
def test_head_has_the_headers_of_get_and_no_body(path_: bytes, patient: Connection) -> None:
    patient.send((GET % path_).replace(b"GET", b"HEAD"))
    head = patient.answer(has_body=False)
    patient.send(GET % path_)
    get = patient.answer()

    headers, _, body = get.partition(b"\r\n\r\n")
    assert body
    assert head.endswith(b"\r\n\r\n")
    assert _without_date(headers) == _without_date(head.removesuffix(b"\r\n\r\n"))


def _without_date(headers: bytes) -> list[bytes]:
    lines = headers.split(b"\r\n")
    return [line for line in lines if not line.startswith((b"date:", b"content-length:"))]
