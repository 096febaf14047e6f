"""The service as a process, with a job that runs, hangs, is killed or is missing."""

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from deploy.local.processes import start_child, stop_child
from job.errors import SetupError
from job.protocol.control import control_socket
from service.__main__ import listening_socket
from tests.integration.certificates import Authority
from tests.polling import wait_until
from tests.unit.service.builders import WAITS, SmallJob, status
from tests.unit.service.calls import AT_ONCE, DEADLINE, PATIENCE_SECONDS, SLACK_SECONDS

pytestmark = pytest.mark.processes

TOKEN = "Yk3iq0Yl8B2w1c5v0m9K"
COMMAND = Path(sysconfig.get_path("scripts")) / "streamjoin-service"

WITHOUT_JOB = ("/metrics", "/livez")
PATHS = (
    *WITHOUT_JOB, "/readyz", "/v1/query", "/v1/query/plan", "/v1/query/progress",
    "/v1/query/failures", "/v1/query/offsets", "/v1/query/state", "/v1/query/state/left?key=7",
    "/v1/query/explain?key=7",
)  # fmt: skip


class Processes:
    """A service and its job, started and ended in any order."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "job.sock"
        self._folder = folder
        self._children: list[subprocess.Popen[bytes]] = []

    def start_job(self, *refusal: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "tests.unit.service.small_job", self.socket, *refusal]
        return self._start(words, "job.log", {})

    def start_service(self, **settings: object) -> "Service":
        environment = {
            "STREAMJOIN_PORT": "0",
            "STREAMJOIN_SOCKET": str(self.socket),
            "STREAMJOIN_JOB_ANSWER_SECONDS": str(PATIENCE_SECONDS),
            **{f"STREAMJOIN_{name.upper()}": str(value) for name, value in settings.items()},
        }
        child = self._start([COMMAND], "service.log", environment)
        return Service(child, self._folder / "service.log")

    def end_all(self) -> None:
        for child in self._children:
            child.kill()
            child.wait()

    def _start(
        self, words: list[str | Path], log: str, environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        child = start_child(
            words, log=self._folder / log, environment={**os.environ, **environment}
        )
        self._children.append(child)
        return child


class Service:
    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self.child = child
        self._log = log

    @property
    def port(self) -> int:
        [serving] = wait_until(
            lambda: self.logged("serving"), PATIENCE_SECONDS, "the service serves"
        )
        return int(str(serving["port"]))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def logged(self, event: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [line for line in lines if line["event"] == event]

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=PATIENCE_SECONDS)

    def sees_the_job(self) -> bool:
        return "\nstreamjoin_job_up 1.0\n" in self.get("/metrics").text


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.end_all()


def test_service_serves_and_stops_on_sigterm(processes: Processes) -> None:
    processes.start_job()
    service = processes.start_service()
    wait_until(service.sees_the_job, PATIENCE_SECONDS, "the job is up")

    assert 200 == service.get("/readyz").status_code
    assert 0 == stop_child(service.child, grace_seconds=PATIENCE_SECONDS)
    assert 1 == len(service.logged("stopped"))


def test_pending_call_is_answered_before_the_service_stops(
    processes: Processes,
) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as hung, ThreadPoolExecutor() as pool:
        hung.bind(str(processes.socket))
        hung.listen()
        service = processes.start_service(job_answer_seconds=2)
        waiting = pool.submit(service.get, "/v1/query")
        hung.settimeout(PATIENCE_SECONDS)
        connection, _ = hung.accept()

        exit_code = stop_child(service.child, grace_seconds=PATIENCE_SECONDS)
        connection.close()

        assert (503, 0) == (waiting.result().status_code, exit_code)


def test_no_call_takes_longer_than_the_deadline_while_the_job_hangs(processes: Processes) -> None:
    job = processes.start_job()
    service = processes.start_service(job_answer_seconds=DEADLINE.total_seconds())
    wait_until(service.sees_the_job, PATIENCE_SECONDS, "the job is up")

    job.send_signal(signal.SIGSTOP)
    started = time.monotonic()
    codes = asyncio.run(codes_of_many(service.url))
    elapsed = time.monotonic() - started

    assert {path: {200 if path in WITHOUT_JOB else 503} for path in PATHS} == codes
    assert elapsed < DEADLINE.total_seconds() + SLACK_SECONDS

    assert 503 == service.get("/v1/query").status_code  # is not logged again
    job.send_signal(signal.SIGCONT)
    wait_until(service.sees_the_job, PATIENCE_SECONDS, "the job is back")
    assert (1, 1) == (len(service.logged("job_down")), len(service.logged("job_up")))


def test_tls_with_a_token_is_the_only_access(processes: Processes, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("service")
    (tmp_path / "tokens").write_text(f"ada control {TOKEN}\n")
    processes.start_job()
    service = processes.start_service(
        tokens_file=tmp_path / "tokens", tls_cert_file=certificate, tls_key_file=key
    )
    trusting = ssl.create_default_context(cafile=str(authority.file))
    [serving] = wait_until(lambda: service.logged("serving"), PATIENCE_SECONDS, "it serves")
    url = f"{serving['scheme']}://127.0.0.1:{serving['port']}"

    with httpx.Client(base_url=url, verify=trusting, timeout=PATIENCE_SECONDS) as client:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert 401 == client.get("/v1/query").status_code
        assert 202 == client.put("/v1/query/pause", headers=headers).status_code
        assert "PAUSED" == client.get("/v1/query", headers=headers).json()["state"]
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{serving['port']}/livez", timeout=PATIENCE_SECONDS)

    assert 0 == stop_child(service.child, grace_seconds=PATIENCE_SECONDS)
    [command] = service.logged("command")
    assert ("pause", "ada@127.0.0.1", 202) == (
        command["verb"],
        command["by"],
        command["status"],
    )
    assert TOKEN not in (tmp_path / "service.log").read_text()


def test_tokens_without_tls_on_a_public_address_are_a_warning(
    processes: Processes, tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text(f"ada control {TOKEN}\n")
    service = processes.start_service(tokens_file=tmp_path / "tokens", host="0.0.0.0")  # noqa: S104

    wait_until(
        lambda: service.logged("tokens_unencrypted"), PATIENCE_SECONDS, "the warning is logged"
    )


def test_service_with_invalid_tokens_or_certificate_does_not_start(
    tmp_path: Path,
) -> None:
    certificate, _ = Authority(tmp_path).issue("service")
    _, encrypted = Authority(tmp_path).issue("other", password=b"x")
    (tmp_path / "tokens").write_text("ada control short")
    names = {"STREAMJOIN_TLS_CERT_FILE": str(certificate)}
    for settings, message in (
        ({"STREAMJOIN_TOKENS_FILE": str(tmp_path / "tokens")}, "line 1: the token must have"),
        (names, "set STREAMJOIN_TLS_CERT_FILE and STREAMJOIN_TLS_KEY_FILE, or neither"),
        ({**names, "STREAMJOIN_TLS_KEY_FILE": str(encrypted)}, "is encrypted: use a key without"),
        ({**names, "STREAMJOIN_TLS_KEY_FILE": str(certificate)}, "cannot load TLS files"),
        ({**names, "STREAMJOIN_TLS_KEY_FILE": "/nowhere"}, "No such file or directory"),
    ):
        assert message in failed_start(**settings)


def test_killed_job_is_down_until_another_one_starts(processes: Processes) -> None:
    job = processes.start_job()
    service = processes.start_service()
    wait_until(service.sees_the_job, PATIENCE_SECONDS, "the job is up")

    job.kill()
    job.wait()

    for path in set(PATHS) - {*WITHOUT_JOB}:
        assert 503 == service.get(path).status_code, path
    assert not service.sees_the_job()
    assert 200 == service.get("/livez").status_code
    processes.start_job()
    wait_until(service.sees_the_job, PATIENCE_SECONDS, "the job is back")
    assert 200 == service.get("/v1/query").status_code


def test_job_cancels_a_lookup_when_the_client_disconnects(processes: Processes) -> None:
    job = SmallJob(status())
    job.answers["state_count"] = WAITS
    with control_socket(processes.socket, job):
        service = processes.start_service()
        with socket.create_connection(("127.0.0.1", service.port)) as caller:
            caller.sendall(b"GET /v1/query/state HTTP/1.1\r\nhost: localhost\r\n\r\n")
            wait_until(lambda: job.gone is not None, PATIENCE_SECONDS, "the job has the call")
            assert job.gone is not None
            assert not job.gone.is_set()

        wait_until(job.gone.is_set, PATIENCE_SECONDS, "the job sees the cancellation")


def test_running_lookup_does_not_delay_the_stop_of_the_service(processes: Processes) -> None:
    job = SmallJob(status())
    job.answers["state_count"] = WAITS
    with control_socket(processes.socket, job), ThreadPoolExecutor() as pool:
        service = processes.start_service()
        waiting = pool.submit(service.get, "/v1/query/state")
        wait_until(lambda: job.gone is not None, PATIENCE_SECONDS, "the job has the call")

        exit_code = stop_child(service.child, grace_seconds=PATIENCE_SECONDS)

        assert (503, 0) == (waiting.result().status_code, exit_code)
        assert (
            "the service is shutting down: repeat the request" == waiting.result().json()["detail"]
        )
        assert job.gone is not None
        wait_until(job.gone.is_set, PATIENCE_SECONDS, "the job sees the cancellation")


def test_killed_service_does_not_affect_the_job(processes: Processes) -> None:
    processes.start_job()
    killed = processes.start_service()
    wait_until(killed.sees_the_job, PATIENCE_SECONDS, "the job is up")
    before = killed.get("/v1/query").json()

    killed.child.kill()
    killed.child.wait()
    (processes.socket.parent / "service.log").unlink()
    after = processes.start_service().get("/v1/query").json()

    assert without_uptime(before) == without_uptime(after)


def test_port_in_use_is_an_error_with_the_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        assert (
            f"streamjoin-service: cannot listen on 127.0.0.1:{port} (Address already in use): "
            "set STREAMJOIN_HOST or STREAMJOIN_PORT, or stop the process that listens there\n"
        ) == failed_start(STREAMJOIN_PORT=str(port))


def test_port_is_bound_before_the_service_serves() -> None:
    with (
        listening_socket("127.0.0.1", 0) as taken,
        pytest.raises(SetupError, match="cannot listen"),
    ):
        listening_socket("127.0.0.1", taken.getsockname()[1])


def test_responses_are_sent_without_nagle_delay() -> None:
    """asyncio sets TCP_NODELAY for sockets with a protocol."""
    with listening_socket("127.0.0.1", 0) as listener:
        assert socket.IPPROTO_TCP == listener.proto


def test_invalid_setting_is_named() -> None:
    assert (
        "streamjoin-service: STREAMJOIN_PORT: Input should be less than or equal to 65535 "
        "(written: 70000)\n"
    ) == failed_start(STREAMJOIN_PORT="70000")


def test_service_imports_neither_spark_nor_a_kafka_client() -> None:
    program = """
import sys, service.__main__
loaded = {name.partition(".")[0] for name in sys.modules}
print(sorted(loaded & {"pyspark", "py4j", "confluent_kafka"}))
"""
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert "[]\n" == found.stdout


async def codes_of_many(url: str) -> dict[str, set[int]]:
    """The status codes of many calls at the same time."""
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        answers = await asyncio.gather(
            *(client.get(PATHS[number % len(PATHS)]) for number in range(AT_ONCE))
        )
    return {
        path: {each.status_code for each in answers if each.request.url.raw_path.decode() == path}
        for path in PATHS
    }


def failed_start(**environment: str) -> str:
    """Error output of a service that cannot start."""
    ended = subprocess.run(
        [COMMAND],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (1, "") == (ended.returncode, ended.stdout)
    return ended.stderr


def without_uptime(body: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in body.items() if name != "uptime_seconds"}
