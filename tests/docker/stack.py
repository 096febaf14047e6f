"""Runs docker-compose.yml: its containers, and the interfaces that a user has."""

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.polling import wait_until

ROOT = Path(__file__).parents[2]
# A start takes 10 s on two idle cores, several times that on shared ones.
START_SECONDS = 180.0
# Compose's default is to wait indefinitely.
UP_SECONDS = 300
_COMPILER = "-XX:TieredStopAtLevel=1"
_JAVA_OPTIONS = {"environment": {"JDK_JAVA_OPTIONS": _COMPILER}}
TLS_CONTEXT = httpx.create_ssl_context()
"""Of all clients: httpx takes 30 ms of CPU time to create one, and tests poll."""


class Stack:
    """With the values of deploy/docker/example.env, on its own ports and with its own secrets. A
    .env in the folder is ignored. Its JVMs start without the optimizing compiler, which would take
    CPU time from other tests."""

    files: tuple[str, ...] = ("docker-compose.yml",)
    jvms: tuple[str, ...] = ("job",)
    """Services with a JVM that the project starts."""

    def __init__(self, project: str, folder: Path) -> None:
        self.folder = folder
        self._project = project
        self._ports = {name: _free_port() for name in ("SERVICE", "KAFKA", "PROMETHEUS")}
        secrets = folder / "secrets"
        subprocess.run([ROOT / "deploy/docker/secrets.sh", secrets], check=True)
        options = folder / "java_options.yaml"
        options.write_text(yaml.safe_dump({"services": dict.fromkeys(self.jvms, _JAVA_OPTIONS)}))
        self._environment = {
            **os.environ,
            "COMPOSE_FILE": ":".join([*self.files, str(options)]),
            "COMPOSE_PROFILES": "",
            "KAFKA_HEAP_OPTS": f"-Xms256m -Xmx512m {_COMPILER}",
            "SECRETS": str(secrets),
            **{f"{name}_PORT": str(port) for name, port in self._ports.items()},
        }
        lines = (secrets / "tokens").read_text().splitlines()
        self._tokens = {line.split()[0]: line.split()[2] for line in lines if line[0] != "#"}

    @property
    def kafka(self) -> str:
        """The address of the broker for programs on this machine."""
        return f"localhost:{self._ports['KAFKA']}"

    @property
    def prometheus(self) -> str:
        return f"http://127.0.0.1:{self._ports['PROMETHEUS']}"

    def service(self, holder: str | None = "operator") -> httpx.Client:
        """The API, with the token of `holder`."""
        headers = {"Authorization": f"Bearer {self._tokens[holder]}"} if holder else {}
        url = f"http://127.0.0.1:{self._ports['SERVICE']}"
        return httpx.Client(
            base_url=url, headers=headers, timeout=30, trust_env=False, verify=TLS_CONTEXT
        )

    def query(self) -> dict[str, Any]:
        """The service's view of the query; empty while the service or the job does not answer."""
        try:
            with self.service() as client:
                answer = client.get("/v1/query")
        except httpx.TransportError:
            return {}
        return dict(answer.json()) if answer.status_code == 200 else {}

    def wait_for_state(self, state: str) -> dict[str, Any]:
        def reached() -> dict[str, Any]:
            query = self.query()
            return query if query.get("state") == state else {}

        return wait_until(reached, START_SECONDS, f"the query is {state}")

    # Containers

    def compose(self, *arguments: str) -> str:
        """The output of `docker compose`; its failure is the failure of the test."""
        command = ["docker", "compose", "--project-name", self._project]
        command += ["--env-file", str(ROOT / "deploy/docker/example.env"), *arguments]
        process = subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True
        )
        output = f"{process.stdout}\n{process.stderr[-4000:]}"
        assert 0 == process.returncode, f"docker compose {' '.join(arguments)}:\n{output}"
        return process.stdout

    def up(self, *services: str) -> None:
        """Start these services and all their dependencies."""
        self.compose("up", "--detach", "--wait", "--wait-timeout", str(UP_SECONDS), *services)

    def use_spec(self, spec: str) -> None:
        """The next `up` creates the job with this spec."""
        path = self.folder / "spec.yaml"
        path.write_text(spec)
        self._environment["STREAMJOIN_SPEC"] = str(path)

    def down(self) -> None:
        self.compose("--profile", "*", "down", "--volumes", "--remove-orphans")

    def inside(self, service: str, command: str) -> str:
        """The output of a shell command in a running container."""
        return self.compose("exec", "-T", service, "sh", "-c", command)

    def in_image(self, service: str, *command: str) -> str:
        """The output of a command in a new container."""
        options = ["--rm", "--no-deps", "-T", "--entrypoint", command[0]]
        return self.compose("run", *options, service, *command[1:])

    def crash(self, service: str) -> None:
        """Send SIGKILL to all processes in the container, as when memory is exhausted."""
        self.inside(service, "kill -9 -1 || true")

    def image(self, service: str) -> dict[str, Any]:
        name = json.loads(self.compose("config", "--format", "json"))["services"][service]["image"]
        return _inspected("image", name)

    def container(self, service: str) -> dict[str, Any]:
        return _inspected("container", self.compose("ps", "--all", "--quiet", service).strip())


def _inspected(kind: str, name: str) -> dict[str, Any]:
    command = ["docker", kind, "inspect", name]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(process.stdout)[0])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
