"""An OpenLineage endpoint in this process: it records the events; it can also refuse or hang."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

PATH = "/api/v1/lineage"


class LineageStub:
    """`with LineageStub() as endpoint:`"""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.status = 201
        self._free = threading.Event()
        self._free.set()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                stub._free.wait()
                if self.path != PATH or stub.status != 201:
                    self.send_error(404 if self.path != PATH else stub.status)
                    return
                stub.headers.append(dict(self.headers))
                stub.events.append(json.loads(body))
                self.send_response(201)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def states(self) -> list[str]:
        return [event["eventType"] for event in self.events]

    def hang(self) -> None:
        """Accept requests and answer none of them until `release`."""
        self._free.clear()

    def release(self) -> None:
        self._free.set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
