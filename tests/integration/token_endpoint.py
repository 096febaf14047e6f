"""An OAuth token endpoint, and the keys with which the broker checks its tokens."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

AUDIENCE = "kafka"
_KEY_ID = "tests"


class TokenEndpoint(ThreadingHTTPServer):
    """OAuth's client credentials grant for one client."""

    daemon_threads = True

    def __init__(self, client_id: str, client_secret: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        credentials = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
        self.expected = f"Basic {credentials}"
        self.client_id = client_id
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.given = 0
        """How many tokens were issued."""

    @property
    def token_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"

    @property
    def keys_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/keys"

    def token(self) -> str:
        """A JSON Web Token signed with RS256."""
        now = int(time.time())
        header = {"alg": "RS256", "kid": _KEY_ID, "typ": "JWT"}
        claims = {
            "sub": self.client_id,
            "aud": AUDIENCE,
            "iat": now,
            "exp": now + 3600,
            "scope": "kafka",
        }
        signed = ".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
        signature = self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_encoded(signature)}"

    def keys(self) -> dict[str, Any]:
        numbers = self.key.public_key().public_numbers()
        return {
            "keys": [
                {
                    "kty": "RSA",
                    "kid": _KEY_ID,
                    "alg": "RS256",
                    "use": "sig",
                    "n": _encoded(numbers.n.to_bytes(256, "big")),
                    "e": _encoded(numbers.e.to_bytes(3, "big")),
                }
            ]
        }


class _Handler(BaseHTTPRequestHandler):
    server: TokenEndpoint

    def do_POST(self) -> None:  # the base class's name
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.headers.get("Authorization") != self.server.expected:
            self._answer(401, {"error": "invalid_client"})
            return
        self.server.given += 1
        token = self.server.token()
        self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": 3600})

    def do_GET(self) -> None:  # the base class's name
        self._answer(200, self.server.keys())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        """Log nothing."""

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def token_endpoint(client_id: str, client_secret: str) -> Iterator[TokenEndpoint]:
    with TokenEndpoint(client_id, client_secret) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
