"""The sidecar as people run it: a process beside a job that is well, hung, killed or away."""

import asyncio
import json
import os
import signal
import socket
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
from service.__main__ import listening_socket
from tests.polling import wait_until
from tests.unit.service.calls import AT_ONCE, DEADLINE, PATIENCE_SECONDS, SLACK_SECONDS

COMMAND = Path(sysconfig.get_path("scripts")) / "streamjoin-service"


class Processes:
    """A sidecar and its job, to be started and ended in any order."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "job.sock"
        self._folder = folder
        self._children: list[subprocess.Popen[bytes]] = []

    def start_job(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "tests.unit.service.small_job", self.socket]
        return self._started(words, "job.log", {})

    def start_sidecar(self, **settings: object) -> "Sidecar":
        environment = {
            "STREAMJOIN_PORT": "0",
            "STREAMJOIN_SOCKET": str(self.socket),
            "STREAMJOIN_JOB_ANSWER_SECONDS": str(DEADLINE.total_seconds()),
            **{f"STREAMJOIN_{name.upper()}": str(value) for name, value in settings.items()},
        }
        child = self._started([COMMAND], "sidecar.log", environment)
        return Sidecar(child, self._folder / "sidecar.log")

    def end_all(self) -> None:
        for child in self._children:
            child.kill()
            child.wait()

    def _started(
        self, words: list[str | Path], log: str, environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        child = start_child(
            words, log=self._folder / log, environment={**os.environ, **environment}
        )
        self._children.append(child)
        return child


class Sidecar:
    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self.child = child
        self._log = log

    @property
    def url(self) -> str:
        [serving] = wait_until(
            lambda: self.logged("serving"), PATIENCE_SECONDS, "the sidecar serves"
        )
        return f"http://127.0.0.1:{serving['port']}"

    def logged(self, event: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [line for line in lines if line["event"] == event]

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=PATIENCE_SECONDS)

    def says_the_job_is_up(self) -> bool:
        return "\nstreamjoin_job_up 1.0\n" in self.get("/metrics").text


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.end_all()


def test_the_sidecar_serves_and_ends_cleanly_when_told_to(processes: Processes) -> None:
    processes.start_job()
    sidecar = processes.start_sidecar()
    wait_until(sidecar.says_the_job_is_up, PATIENCE_SECONDS, "the job is up")

    assert 200 == sidecar.get("/readyz").status_code
    assert 0 == stop_child(sidecar.child, grace_seconds=PATIENCE_SECONDS)
    assert 1 == len(sidecar.logged("ended"))


def test_a_call_that_waits_for_the_job_is_answered_before_the_sidecar_ends(
    processes: Processes,
) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as hung, ThreadPoolExecutor() as pool:
        hung.bind(str(processes.socket))
        hung.listen()
        sidecar = processes.start_sidecar(job_answer_seconds=2)
        waiting = pool.submit(sidecar.get, "/v1/query")
        hung.settimeout(PATIENCE_SECONDS)
        asked, _ = hung.accept()

        exit_code = stop_child(sidecar.child, grace_seconds=PATIENCE_SECONDS)
        asked.close()

        assert (503, 0) == (waiting.result().status_code, exit_code)


def test_a_stopped_job_makes_no_call_slower_than_the_deadline(processes: Processes) -> None:
    job = processes.start_job()
    sidecar = processes.start_sidecar()
    wait_until(sidecar.says_the_job_is_up, PATIENCE_SECONDS, "the job is up")

    job.send_signal(signal.SIGSTOP)
    started = time.monotonic()
    codes = asyncio.run(codes_of_many(sidecar.url))
    elapsed = time.monotonic() - started

    assert {"/metrics": {200}, "/livez": {200}, "/readyz": {503}, "/v1/query": {503}} == codes
    assert elapsed < DEADLINE.total_seconds() + SLACK_SECONDS

    assert 503 == sidecar.get("/v1/query").status_code  # the log need not say so twice
    job.send_signal(signal.SIGCONT)
    wait_until(sidecar.says_the_job_is_up, PATIENCE_SECONDS, "the job is back")
    assert (1, 1) == (len(sidecar.logged("job_away")), len(sidecar.logged("job_back")))


def test_a_killed_job_is_gone_until_another_one_starts(processes: Processes) -> None:
    job = processes.start_job()
    sidecar = processes.start_sidecar()
    wait_until(sidecar.says_the_job_is_up, PATIENCE_SECONDS, "the job is up")

    job.kill()
    job.wait()

    assert 503 == sidecar.get("/v1/query").status_code
    assert not sidecar.says_the_job_is_up()
    assert 200 == sidecar.get("/livez").status_code
    processes.start_job()
    wait_until(sidecar.says_the_job_is_up, PATIENCE_SECONDS, "the job is back")
    assert 200 == sidecar.get("/v1/query").status_code


def test_a_killed_sidecar_leaves_the_job_as_it_is(processes: Processes) -> None:
    processes.start_job()
    killed = processes.start_sidecar()
    wait_until(killed.says_the_job_is_up, PATIENCE_SECONDS, "the job is up")
    before = killed.get("/v1/query").json()

    killed.child.kill()
    killed.child.wait()
    (processes.socket.parent / "sidecar.log").unlink()
    after = processes.start_sidecar().get("/v1/query").json()

    assert without_uptime(before) == without_uptime(after)


def test_a_taken_port_is_told_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        assert (
            f"streamjoin-service: cannot listen on 127.0.0.1:{port} (Address already in use): "
            "set STREAMJOIN_HOST or STREAMJOIN_PORT, or end what is listening there\n"
        ) == failed_start(STREAMJOIN_PORT=str(port))


def test_a_port_is_taken_before_the_sidecar_serves_on_it() -> None:
    with (
        listening_socket("127.0.0.1", 0) as taken,
        pytest.raises(SetupError, match="cannot listen"),
    ):
        listening_socket("127.0.0.1", taken.getsockname()[1])


def test_answers_are_sent_at_once_not_gathered_by_the_kernel() -> None:
    """asyncio switches that off for sockets that say their protocol."""
    with listening_socket("127.0.0.1", 0) as listener:
        assert socket.IPPROTO_TCP == listener.proto


def test_a_wrong_setting_is_told_by_its_name() -> None:
    assert (
        "streamjoin-service: STREAMJOIN_PORT: Input should be less than or equal to 65535 "
        "(written: 70000)\n"
    ) == failed_start(STREAMJOIN_PORT="70000")


def test_the_sidecar_loads_neither_spark_nor_a_kafka_client() -> None:
    program = """
import sys, service.__main__
loaded = {name.partition(".")[0] for name in sys.modules}
print(sorted(loaded & {"pyspark", "py4j", "confluent_kafka", "sqlglot"}))
"""
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert "[]\n" == found.stdout


async def codes_of_many(url: str) -> dict[str, set[int]]:
    """The status codes of many calls at the same time."""
    paths = ("/metrics", "/livez", "/readyz", "/v1/query")
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        answers = await asyncio.gather(
            *(client.get(paths[number % len(paths)]) for number in range(AT_ONCE))
        )
    return {
        path: {each.status_code for each in answers if each.request.url.path == path}
        for path in paths
    }


def failed_start(**environment: str) -> str:
    """What a sidecar that cannot start says."""
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
