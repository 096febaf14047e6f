"""A Kubernetes API server for the tests: kube-apiserver with its etcd, on 127.0.0.1."""

import secrets
import ssl
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from deploy.local.ports import HOST, free_ports
from deploy.local.processes import last_lines, start_child, stop_child
from tests.polling import wait_until

# Next to S3's, and below the ephemeral ports of Linux (deploy/local/kafka.py).
PORTS = range(32_000, 32_768)
START_SECONDS = 120.0
STOP_SECONDS = 20.0
ANSWER_SECONDS = 30.0
# Field manager: the name that kubectl uses.
MANAGER = "kubectl"
Document = dict[str, Any]


class ApiServer:
    """`with ApiServer(program, folder) as server:`; it has one user, who may do anything."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program = program
        self._folder = folder
        [self._port] = free_ports(PORTS, 1)
        self._token = secrets.token_hex(16)
        self._client = httpx.Client()
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        log = self._folder / "server.log"
        command = [str(self._program), str(self._folder / "etcd"), *self._flags()]
        self._child = child = start_child(command, log=log)
        certificate = self._folder / "certificates/apiserver.crt"

        def is_ready() -> bool:
            assert child.poll() is None, f"it has ended: {last_lines(log)}"
            return certificate.exists() and self._answers_ready(certificate)

        wait_until(is_ready, START_SECONDS, "the API server is ready")
        self._client = self._trusting(certificate)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()
        assert self._child is not None
        stop_child(self._child, grace_seconds=STOP_SECONDS)

    def apply(self, document: Document, namespace: str | None = None) -> httpx.Response:
        """Apply as `kubectl apply --server-side` does; the server's warnings are in the headers."""
        return self._client.patch(
            f"{self._resource(document, namespace)}/{document['metadata']['name']}",
            params={"fieldManager": MANAGER, "fieldValidation": "Strict"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            json=document,
        )

    def _resource(self, document: Document, namespace: str | None) -> str:
        """The path of the document's kind, from the server's discovery API."""
        version = document["apiVersion"]
        group = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for resource in self._client.get(group).raise_for_status().json()["resources"]:
            if resource["kind"] == document["kind"] and "/" not in resource["name"]:
                within = f"/namespaces/{namespace}" if resource["namespaced"] else ""
                return f"{group}{within}/{resource['name']}"
        raise AssertionError(f"the server knows no {document['kind']} in {version}")

    def _flags(self) -> list[str]:
        tokens = self._folder / "tokens.csv"
        tokens.write_text(f'{self._token},admin,1,"system:masters"\n')
        key = self._folder / "service-accounts.pem"
        key.write_bytes(
            ec.generate_private_key(ec.SECP256R1()).private_bytes(
                Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
            )
        )
        return [
            f"--bind-address={HOST}",
            f"--secure-port={self._port}",
            f"--cert-dir={self._folder / 'certificates'}",
            f"--advertise-address={HOST}",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--anonymous-auth=false",
            # As in most clusters: admission decides which pods may be privileged.
            "--allow-privileged=true",
            "--authorization-mode=RBAC",
            f"--token-auth-file={tokens}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
        ]

    def _answers_ready(self, certificate: Path) -> bool:
        try:
            with self._trusting(certificate) as client:
                return client.get("/readyz").status_code == httpx.codes.OK
        except (httpx.TransportError, ssl.SSLError):  # it does not listen yet, or is still starting
            return False

    def _trusting(self, certificate: Path) -> httpx.Client:
        return httpx.Client(
            base_url=f"https://{HOST}:{self._port}",
            headers={"Authorization": f"Bearer {self._token}"},
            verify=ssl.create_default_context(cafile=str(certificate)),
            timeout=ANSWER_SECONDS,
            trust_env=False,
        )
