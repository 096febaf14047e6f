"""A schema registry with Confluent's API in this process; it can also be broken."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

NOT_FOUND = {"subjects": 40401, "schemas": 40403}


class RegistryStub:
    """`with RegistryStub() as registry:`; ids count from 1, as in Confluent's."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.broken: tuple[int, str] | None = None
        """Status and body of every answer; None: it works."""
        self.refusal: str | None = None
        """Reason why no subject takes another version; None: each takes all."""
        self._schemas: dict[int, dict[str, Any]] = {}
        self._versions: dict[str, list[int]] = {}
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stub.asked.append(self.path)
                stub.headers.append(dict(self.headers))
                status, body = stub.broken or stub.answer(self.path)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", body)
                self.end_headers()
                self.wfile.write(body.encode())

            def do_POST(self) -> None:
                stub.asked.append(f"POST {self.path}")
                sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, body = stub.broken or stub.take(self.path, sent)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def register(
        self,
        subject: str,
        schema: dict[str, Any] | list[Any] | str,
        kind: str = "AVRO",
        references: list[dict[str, Any]] | None = None,
    ) -> int:
        """The id of a new version of `subject`."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        number = len(self._schemas) + 1
        self._schemas[number] = {
            "schema": text,
            "references": references or [],
            # Omitted for Avro, as in Confluent's.
            **({} if kind == "AVRO" else {"schemaType": kind}),
        }
        self._versions.setdefault(subject, []).append(number)
        return number

    def answer(self, path: str) -> tuple[int, str]:
        kind, name, *rest = path.strip("/").split("/")
        if kind == "schemas" and int(rest[0]) in self._schemas:
            return 200, json.dumps(self._schemas[int(rest[0])])
        ids = self._versions.get(unquote(name), []) if kind == "subjects" else []
        if ids:
            version = len(ids) if rest[1] == "latest" else int(rest[1])
            number = ids[version - 1]
            answer = {**self._schemas[number], "subject": name, "version": version, "id": number}
            return 200, json.dumps(answer)
        return 404, json.dumps({"error_code": NOT_FOUND.get(kind, 404), "message": "not found"})

    def take(self, path: str, sent: dict[str, Any]) -> tuple[int, str]:
        if path.startswith("/compatibility/"):
            return self._compatibility(unquote(path.split("/")[3]))
        _, name, *rest = path.strip("/").split("/")
        subject = unquote(name)
        for number in self._versions.get(subject, []):
            if self._schemas[number]["schema"] == sent["schema"]:
                return 200, json.dumps({"id": number})
        if not rest:
            return 404, json.dumps({"error_code": 40403, "message": "Schema not found"})
        if self.refusal is not None:
            return 409, json.dumps({"error_code": 409, "message": self.refusal})
        number = self.register(subject, sent["schema"], sent.get("schemaType", "AVRO"))
        return 200, json.dumps({"id": number})

    def _compatibility(self, subject: str) -> tuple[int, str]:
        if subject not in self._versions:
            return 404, json.dumps({"error_code": 40401, "message": "Subject not found"})
        messages = [] if self.refusal is None else [self.refusal]
        return 200, json.dumps({"is_compatible": not messages, "messages": messages})

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
