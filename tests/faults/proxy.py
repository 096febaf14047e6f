"""A TCP proxy between the job and its broker, which can cut, delay, hold and drop messages.

It changes no byte: the broker has a separate listener for it (`advertised.listeners` contains the
proxy's port), so that clients connect through it. It parses only the head of a request (length, api
key, version, correlation id), whether the head contains a transactional id, and whether EndTxn
commits or aborts.
"""

import asyncio
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Self

from deploy.local.kafka import HOST
from tests.polling import wait_until


class Api(IntEnum):
    """Kafka's keys of the requests of a transaction, in their order."""

    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    PRODUCE = 0
    END_TXN = 26


# From this version on a request ends with tagged fields, here none: one byte 0.
_END_TXN_FLEXIBLE = 3
_ANSWER_SECONDS = 30.0
_CAUGHT_SECONDS = 120.0
# A request begins with api key, version, correlation id, client id and transactional id.
_HEAD_BYTES = 300


@dataclass(eq=False)
class Point:
    """A point of the transaction protocol: a request of one producer is caught there."""

    api: Api
    transactional_id: str
    is_answered: bool = False
    """True: the broker has received and answered the request, and the client waits for the answer.
    False: the broker has not received it."""
    passing: int = 0
    """Number of such requests that pass before."""
    is_caught: bool = field(default=False, init=False)

    def is_of(self, frame: bytes) -> bool:
        [api_key] = struct.unpack_from(">h", frame)
        return (
            api_key == self.api
            and self.transactional_id.encode() in frame[:_HEAD_BYTES]
            and (self.api is not Api.END_TXN or _is_commit(frame))
        )


@dataclass
class Counts:
    """Counters of the faults: the proof that a fault has happened."""

    connections: int = 0
    cut: int = 0
    refused: int = 0
    delayed: int = 0
    held: int = 0
    commits_seen: int = 0
    commits_swallowed: int = 0
    replies_swallowed: int = 0


@dataclass(eq=False)
class _Connection:
    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    swallow_reply_to: set[int] = field(default_factory=set)
    catch_reply_to: dict[int, Point] = field(default_factory=dict)

    def close(self) -> None:
        for writer in (self.client, self.broker):
            writer.transport.abort()


class Proxy:
    """`with Proxy(port) as proxy:`, then `proxy.upstream = …`; each fault lasts until `heal`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.upstream = ""
        self.counts = Counts()
        self._connections: set[_Connection] = set()
        self._is_cut = False
        self._delay_seconds = 0.0
        self._swallow_commits = 0
        self._swallow_replies = 0
        self._close_after_swallowing = False
        self._points: list[Point] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._flow, self._released = self._on_loop(_open_event()), self._on_loop(_open_event())
        self._server = self._on_loop(asyncio.start_server(self._serve, HOST, self.port))
        return self

    def __exit__(self, *_: object) -> None:
        self._on_loop(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # Faults

    def cut(self) -> None:
        """End all connections and refuse new ones."""
        self._on_loop(self._cut())

    def slow(self, seconds: float) -> None:
        """Delay each piece of each answer."""
        self._delay_seconds = seconds

    def hold_replies(self) -> None:
        """In one direction only: requests arrive, answers do not, and no connection ends."""
        self._on_loop(self._hold())

    def swallow_reply_of_commit(self, *, close: bool) -> None:
        """Forward the next commit, and drop its answer. `close`: end the connection."""
        self._close_after_swallowing = close
        self._swallow_replies = 1

    def swallow_commit(self) -> None:
        """Drop the next commit."""
        self._swallow_commits = 1

    def catch(self, *points: Point) -> None:
        """Hold the first request at each point, until `release`. The connection then passes
        nothing, and is not closed when the client ends: its request arrives late."""
        self._loop.call_soon_threadsafe(self._released.clear)
        self._points = list(points)

    def wait_until_caught(self, *points: Point) -> None:
        wait_until(
            lambda: all(point.is_caught for point in points),
            _CAUGHT_SECONDS,
            f"a request is caught at each of {points}",
        )

    def release(self) -> None:
        """Pass what was caught."""
        self._points = []
        self._loop.call_soon_threadsafe(self._released.set)

    def heal(self) -> None:
        self.release()
        self._swallow_commits = self._swallow_replies = 0
        self._delay_seconds = 0.0
        self._is_cut = False
        self._loop.call_soon_threadsafe(self._flow.set)

    # On the loop's thread

    def _on_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWER_SECONDS)

    async def _cut(self) -> None:
        self._is_cut = True
        self.counts.cut += len(self._connections)
        for connection in self._connections:
            connection.close()

    async def _hold(self) -> None:
        self._flow.clear()

    async def _end(self) -> None:
        self._flow.set()
        self._released.set()
        self._server.close()
        for connection in self._connections:
            connection.close()
        await self._server.wait_closed()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            self.counts.refused += 1
            writer.transport.abort()
            return
        host, port = self.upstream.split(":")
        try:
            answers, broker = await asyncio.open_connection(host, int(port))
        except OSError:  # the broker is down, and so must the proxy appear
            writer.transport.abort()
            return
        connection = _Connection(writer, broker)
        self._connections.add(connection)
        self.counts.connections += 1
        try:
            await asyncio.gather(
                self._pass_requests(reader, connection), self._pass_answers(answers, connection)
            )
        except (OSError, asyncio.IncompleteReadError):
            pass  # one end is closed, so the other must be closed
        finally:
            connection.close()
            self._connections.discard(connection)

    async def _pass_requests(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        while True:
            frame = await _frame(reader)
            if _is_commit(frame):
                self.counts.commits_seen += 1
                if self._swallow_commits:
                    self._swallow_commits -= 1
                    self.counts.commits_swallowed += 1
                    continue
                if self._swallow_replies:
                    self._swallow_replies -= 1
                    connection.swallow_reply_to.add(_correlation_id(frame, 4))
            point = self._reached(frame)
            if point is not None and point.is_answered:
                connection.catch_reply_to[_correlation_id(frame, 4)] = point
            elif point is not None:
                await self._hold_at(point)
            connection.broker.write(struct.pack(">i", len(frame)) + frame)
            await connection.broker.drain()

    def _reached(self, frame: bytes) -> Point | None:
        """The point at which the request is caught."""
        for point in self._points:
            if point.is_of(frame):
                if point.passing == 0:
                    self._points.remove(point)
                    return point
                point.passing -= 1
        return None

    async def _hold_at(self, point: Point) -> None:
        point.is_caught = True
        await self._released.wait()

    async def _pass_answers(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        while True:
            frame = await _frame(reader)
            identity = _correlation_id(frame, 0)
            if identity in connection.swallow_reply_to:
                connection.swallow_reply_to.discard(identity)
                self.counts.replies_swallowed += 1
                if self._close_after_swallowing:
                    raise ConnectionAbortedError
                continue
            point = connection.catch_reply_to.pop(identity, None)
            if point is not None:
                await self._hold_at(point)
            if self._delay_seconds:
                self.counts.delayed += 1
                await asyncio.sleep(self._delay_seconds)
            if not self._flow.is_set():
                self.counts.held += 1
                await self._flow.wait()
            connection.client.write(struct.pack(">i", len(frame)) + frame)
            await connection.client.drain()


async def _open_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """A request or an answer, without its length."""
    [length] = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)


def _correlation_id(frame: bytes, at: int) -> int:
    identity: int = struct.unpack_from(">i", frame, at)[0]
    return identity


def _is_commit(frame: bytes) -> bool:
    """Whether it is an EndTxn request that commits."""
    api_key, version = struct.unpack_from(">hh", frame)
    if api_key != Api.END_TXN:
        return False
    return frame[-1 if version < _END_TXN_FLEXIBLE else -2] == 1
