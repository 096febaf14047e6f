"""Runs job and service as containers, as in a deployment."""

import secrets
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import httpx
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from job.errors import SetupError
from streamjoin.testing.images import Images, explain_container_errors
from streamjoin.testing.spec import STATE_PARTITIONS, SpecAtTest
from streamjoin.testing.waiting import wait_until

SERVICE_PORT = 8080
# A start takes 10 s on two idle cores, several times that on shared ones.
START_SECONDS = 180.0
LOG_LINES = 30

_SPEC = "/etc/streamjoin/join.yaml"
_TOKENS = "/etc/streamjoin/tokens"
_SOCKETS = "/run/streamjoin"


class Containers:
    """`with Containers(...)` starts job and service, and waits until `/readyz` returns 200."""

    def __init__(self, spec: SpecAtTest, images: Images, network: Network) -> None:
        self._images = images
        # Contains the socket between job and service. Docker creates it with the first container.
        self._volume = f"streamjoin-testing-{secrets.token_hex(8)}"
        token = secrets.token_hex(16)
        self._headers = {"Authorization": f"Bearer {token}"}
        self.job = (
            DockerContainer(images.job, network=network)
            .with_copy_into_container(spec.text.encode(), _SPEC)
            .with_volume_mapping(self._volume, _SOCKETS, "rw")
            .with_envs(
                STREAMJOIN_STATE_PARTITIONS=str(STATE_PARTITIONS), STREAMJOIN_DRIVER_MEMORY="1g"
            )
        )
        self.service = (
            DockerContainer(images.service, network=network)
            .with_copy_into_container(f"tests control {token}\n".encode(), _TOKENS)
            .with_volume_mapping(self._volume, _SOCKETS, "ro")
            .with_envs(STREAMJOIN_TOKENS_FILE=_TOKENS)
            .with_exposed_ports(SERVICE_PORT)
        )
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened, explain_container_errors(self._images):
            opened.callback(self._remove_volume)
            opened.enter_context(self.job)
            opened.enter_context(self.service)
            self.http = opened.enter_context(self._client())
            self.wait_until_ready()
            self._open = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            self._job_must_run()
            try:
                return self.http.get("/readyz").status_code == 200
            except httpx.TransportError:
                return False

        wait_until(is_ready, START_SECONDS, self._not_ready)

    def crash_job(self) -> None:
        """Kill the container with SIGKILL and start it again on the same checkpoint."""
        self.job.get_wrapped_container().kill()
        self.job.get_wrapped_container().start()
        self.wait_until_ready()

    def logs(self) -> str:
        """The last lines of the job."""
        out, err = self.job.get_logs()
        lines = (out + err).decode(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES:])

    def answer(self, path: str) -> dict[str, Any]:
        """JSON response of the service; empty if the service or the job does not answer."""
        self._job_must_run()
        try:
            answer = self.http.get(path)
        except httpx.TransportError:
            return {}
        return dict(answer.json()) if answer.status_code == 200 else {}

    def _client(self) -> httpx.Client:
        host = self.service.get_container_host_ip()
        url = f"http://{host}:{self.service.get_exposed_port(SERVICE_PORT)}"
        return httpx.Client(base_url=url, headers=self._headers, timeout=30, trust_env=False)

    def _job_must_run(self) -> None:
        self.job.reload()
        if self.job.status == "exited":
            raise SetupError(
                f"the job ({self._images.job}) has ended; its last log lines:\n{self.logs()}"
            )

    def _not_ready(self) -> str:
        try:
            readiness = self.http.get("/readyz").text
        except httpx.TransportError as error:
            readiness = f"no answer ({error})"
        return f"the join is not ready: {readiness}\nlog of the job:\n{self.logs()}"

    def _remove_volume(self) -> None:
        engine = self.job.get_docker_client().client
        for volume in engine.volumes.list(filters={"name": self._volume}):
            volume.remove()
