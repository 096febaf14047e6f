"""uvicorn's HTTP/1.1 with a time limit for receiving the headers and body of a request.

A half-sent request holds a connection and a file descriptor. uvicorn's settings do not replace this
limit: of 500 half-sent requests, uvicorn 0.54.0 closes none within a minute, and with
`limit_concurrency=100` it counts them and refuses /livez with 503.
"""

import asyncio
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.problems import MEDIA_TYPE, Problem

# The largest request has 80 kB, so a client needs 4 kB/s.
REQUEST_SECONDS = 20.0


class TimedProtocol(H11Protocol):
    """Closes the connection if a request does not arrive completely in time.

    Between two requests uvicorn's own limit for idle connections applies.
    """

    request_seconds = REQUEST_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)

    def _set_timer(self) -> None:
        """Run the timer from the first to the last byte of a request. A byte in between does not
        restart it."""
        if self.transport.is_closing() or not self._is_incomplete():
            self._cancel_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.request_seconds, self._expire)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_incomplete(self) -> bool:
        """Whether the client has yet to send the rest of a request, or its first request."""
        if self.conn.their_state is h11.IDLE:
            has_begun, _ = self.conn.trailing_data
            return bool(has_begun) or self.cycle is None
        return self.conn.their_state is h11.SEND_BODY

    def _expire(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY and not self.cycle.response_complete:
            # The application receives http.disconnect instead of the rest of the body.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._write_refusal()
        self.transport.close()

    def _write_refusal(self) -> None:
        status = HTTPStatus.REQUEST_TIMEOUT
        path = self.scope["path"] if self.conn.their_state is h11.SEND_BODY else ""
        body = Problem(
            title=status.phrase,
            status=status,
            detail=f"the request did not arrive completely within {self.request_seconds:g} s: "
            "send its headers and body without a pause",
            instance=quote(path),
        ).model_dump_json(exclude_none=True)
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        response = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
        for event in (response, h11.Data(data=body.encode()), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
