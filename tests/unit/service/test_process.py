"""The sidecar as people run it: a process beside a job that is well, hung, killed or away."""

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
    """A sidecar and its job, to be started and ended in any order."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "job.sock"
        self.job_log = folder / "job.log"
        self._folder = folder
        self._children: list[subprocess.Popen[bytes]] = []

    def start_job(self, *mood: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "tests.unit.service.small_job", self.socket, *mood]
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
    def port(self) -> int:
        [serving] = wait_until(
            lambda: self.logged("serving"), PATIENCE_SECONDS, "the sidecar serves"
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

    assert {path: {200 if path in WITHOUT_JOB else 503} for path in PATHS} == codes
    assert elapsed < DEADLINE.total_seconds() + SLACK_SECONDS

    assert 503 == sidecar.get("/v1/query").status_code  # the log need not say so twice
    job.send_signal(signal.SIGCONT)
    wait_until(sidecar.says_the_job_is_up, PATIENCE_SECONDS, "the job is back")
    assert (1, 1) == (len(sidecar.logged("job_away")), len(sidecar.logged("job_back")))


def test_a_command_to_a_hung_job_is_not_carried_out_when_it_wakes(processes: Processes) -> None:
    job = processes.start_job()
    sidecar = processes.start_sidecar()
    wait_until(sidecar.says_the_job_is_up, PATIENCE_SECONDS, "the job is up")

    job.send_signal(signal.SIGSTOP)
    answer = httpx.put(f"{sidecar.url}/v1/query/pause", timeout=PATIENCE_SECONDS)
    job.send_signal(signal.SIGCONT)

    assert 503 == answer.status_code
    assert "If it has not taken the pause by now, it will not" in answer.json()["detail"]
    wait_until(
        lambda: "command_expired" in processes.job_log.read_text(),
        PATIENCE_SECONDS,
        "the job has woken and read the command",
    )
    assert "RUNNING" == sidecar.get("/v1/query").json()["state"]


def test_over_tls_with_a_token_and_nothing_else(processes: Processes, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("sidecar")
    (tmp_path / "tokens").write_text(f"ada control {TOKEN}\n")
    processes.start_job()
    sidecar = processes.start_sidecar(
        tokens_file=tmp_path / "tokens", tls_cert_file=certificate, tls_key_file=key
    )
    trusting = ssl.create_default_context(cafile=str(authority.file))
    [serving] = wait_until(lambda: sidecar.logged("serving"), PATIENCE_SECONDS, "it serves")
    url = f"{serving['scheme']}://127.0.0.1:{serving['port']}"

    with httpx.Client(base_url=url, verify=trusting, timeout=PATIENCE_SECONDS) as client:
        shown = {"Authorization": f"Bearer {TOKEN}"}
        assert 401 == client.get("/v1/query").status_code
        assert 202 == client.put("/v1/query/pause", headers=shown).status_code
        assert "PAUSED" == client.get("/v1/query", headers=shown).json()["state"]
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{serving['port']}/livez", timeout=PATIENCE_SECONDS)

    assert 0 == stop_child(sidecar.child, grace_seconds=PATIENCE_SECONDS)
    [command] = sidecar.logged("command")
    assert ("pause", "ada@127.0.0.1", 202) == (
        command["verb"],
        command["by"],
        command["status"],
    )
    assert TOKEN not in (tmp_path / "sidecar.log").read_text()


def test_tokens_without_tls_where_others_listen_are_warned_of(
    processes: Processes, tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text(f"ada control {TOKEN}\n")
    sidecar = processes.start_sidecar(tokens_file=tmp_path / "tokens", host="0.0.0.0")  # noqa: S104

    wait_until(lambda: sidecar.logged("tokens_unencrypted"), PATIENCE_SECONDS, "it is said")


def test_a_sidecar_whose_tokens_or_certificate_cannot_be_used_does_not_start(
    tmp_path: Path,
) -> None:
    certificate, _ = Authority(tmp_path).issue("sidecar")
    _, encrypted = Authority(tmp_path).issue("other", password=b"x")
    (tmp_path / "tokens").write_text("ada control short")
    names = {"STREAMJOIN_TLS_CERT_FILE": str(certificate)}
    for settings, said in (
        ({"STREAMJOIN_TOKENS_FILE": str(tmp_path / "tokens")}, "line 1: the token must have"),
        (names, "STREAMJOIN_TLS_CERT_FILE and STREAMJOIN_TLS_KEY_FILE need each other"),
        ({**names, "STREAMJOIN_TLS_KEY_FILE": str(encrypted)}, "is encrypted: give one without"),
        ({**names, "STREAMJOIN_TLS_KEY_FILE": str(certificate)}, "no TLS with"),
        ({**names, "STREAMJOIN_TLS_KEY_FILE": "/nowhere"}, "No such file or directory"),
    ):
        assert said in failed_start(**settings)


def test_a_killed_job_is_gone_until_another_one_starts(processes: Processes) -> None:
    job = processes.start_job()
    sidecar = processes.start_sidecar()
    wait_until(sidecar.says_the_job_is_up, PATIENCE_SECONDS, "the job is up")

    job.kill()
    job.wait()

    for path in set(PATHS) - {*WITHOUT_JOB}:
        assert 503 == sidecar.get(path).status_code, path
    assert not sidecar.says_the_job_is_up()
    assert 200 == sidecar.get("/livez").status_code
    processes.start_job()
    wait_until(sidecar.says_the_job_is_up, PATIENCE_SECONDS, "the job is back")
    assert 200 == sidecar.get("/v1/query").status_code


def test_the_job_gives_up_a_look_up_when_the_caller_hangs_up(processes: Processes) -> None:
    job = SmallJob(status())
    job.answers["state_count"] = WAITS
    with control_socket(processes.socket, job):
        sidecar = processes.start_sidecar(job_answer_seconds=PATIENCE_SECONDS)
        with socket.create_connection(("127.0.0.1", sidecar.port)) as caller:
            caller.sendall(b"GET /v1/query/state HTTP/1.1\r\nhost: localhost\r\n\r\n")
            wait_until(lambda: job.gone is not None, PATIENCE_SECONDS, "the job is asked")
            assert job.gone is not None
            assert not job.gone.is_set()

        wait_until(job.gone.is_set, PATIENCE_SECONDS, "the job knows")


def test_a_look_up_at_work_does_not_keep_the_sidecar_from_ending(processes: Processes) -> None:
    job = SmallJob(status())
    job.answers["state_count"] = WAITS
    with control_socket(processes.socket, job), ThreadPoolExecutor() as pool:
        sidecar = processes.start_sidecar(job_answer_seconds=PATIENCE_SECONDS)
        waiting = pool.submit(sidecar.get, "/v1/query/state")
        wait_until(lambda: job.gone is not None, PATIENCE_SECONDS, "the job is asked")

        exit_code = stop_child(sidecar.child, grace_seconds=PATIENCE_SECONDS)

        assert (503, 0) == (waiting.result().status_code, exit_code)
        assert "the service ends: ask again once it is back" == waiting.result().json()["detail"]
        assert job.gone is not None
        wait_until(job.gone.is_set, PATIENCE_SECONDS, "the job knows")


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
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        answers = await asyncio.gather(
            *(client.get(PATHS[number % len(PATHS)]) for number in range(AT_ONCE))
        )
    return {
        path: {each.status_code for each in answers if each.request.url.raw_path.decode() == path}
        for path in PATHS
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
