"""A TCP proxy between the job and its broker, which can cut, delay, hold and drop messages.

It changes no byte: the broker has a separate listener for it (`advertised.listeners` contains the
proxy's port), so that clients connect through it. It parses only the head of a request (length, api
key, version, correlation id, transactional id), whether EndTxn commits or aborts, and searches
AddPartitionsToTxn for the name of a topic.
"""

import asyncio
import math
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Self

from deploy.local.ports import HOST
from tests.polling import wait_until


class Api(IntEnum):
    """Kafka's keys of the requests of a transaction, in their order."""

    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    PRODUCE = 0
    END_TXN = 26


# From these versions on, a request has the length of a string in one byte, and tagged fields, here
# none: one byte 0.
_FLEXIBLE = {
    Api.INIT_PRODUCER_ID: 2,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.PRODUCE: 9,
    Api.END_TXN: 3,
}
# A request begins with api key, version and correlation id.
_CLIENT_ID_AT = 8
_ANSWER_SECONDS = 30.0
_CAUGHT_SECONDS = 120.0
_END_SECONDS = 0.1


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
    topic: str | None = None
    """The transaction writes to this topic. None: to any topic. The last transaction of an interval
    can contain no results, only the marker."""
    is_caught: bool = field(default=False, init=False)
    client_port: int | None = field(default=None, init=False)
    """Port of the client's end of the connection on which the request was caught."""
    is_over: bool = field(default=False, init=False)
    """The broker has answered the request after `release`."""

    def is_of(self, frame: bytes, transaction: bytes) -> bool:
        """`transaction`: the requests AddPartitionsToTxn of the open transaction."""
        return (
            not self.is_caught  # by the proxy of another broker
            and self.api == _api_key(frame)
            and self.transactional_id == transactional_id(frame)
            and (self.api is not Api.END_TXN or _is_commit(frame))
            and (self.topic is None or self.topic.encode() in transaction)
        )


class OpenTransactions:
    """The open transaction of each producer, from its requests."""

    def __init__(self) -> None:
        self._added: dict[str | None, bytes] = {}

    def of(self, frame: bytes) -> bytes:
        """The requests AddPartitionsToTxn of the transaction to which the request belongs."""
        producer = transactional_id(frame)
        match _api_key(frame):
            case Api.INIT_PRODUCER_ID:
                self._added.pop(producer, None)
            case Api.ADD_PARTITIONS_TO_TXN:
                self._added[producer] = self._added.get(producer, b"") + frame
            case Api.END_TXN:
                return self._added.pop(producer, b"")
        return self._added.get(producer, b"")


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
    commits_repeated: int = 0
    """Commits that the client has sent again, after the broker had received them."""
    replies_swallowed: int = 0


@dataclass(eq=False)
class _Connection:
    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    swallow_reply_to: set[int] = field(default_factory=set)
    catch_reply_to: dict[int, Point] = field(default_factory=dict)
    late: dict[int, asyncio.Event] = field(default_factory=dict)
    """For each request that was held: whether its answer has arrived."""

    @property
    def client_port(self) -> int:
        port: int = self.client.get_extra_info("peername")[1]
        return port

    def close(self) -> None:
        for writer in (self.client, self.broker):
            writer.transport.abort()


class Proxy:
    """`with Proxy(port) as proxy:`, then `proxy.upstream = …`; each fault lasts until `heal`."""

    def __init__(self, port: int, transactions: OpenTransactions | None = None) -> None:
        """`transactions`: shared with the proxies of the other brokers of a cluster."""
        self.port = port
        self.upstream = ""
        self.counts = Counts()
        self._connections: set[_Connection] = set()
        self._is_cut = False
        self._delay_seconds = 0.0
        self._swallow_commits: float = 0
        self._swallow_replies = 0
        self._close_after_swallowing = False
        self._points: list[Point] = []
        self._transactions = transactions or OpenTransactions()
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

    def swallow_all_commits(self) -> None:
        """Drop each commit, also one that is sent again, until `heal`."""
        self._swallow_commits = math.inf

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

    def wait_until_over(self, *points: Point) -> None:
        """After `release`: the broker has answered the requests."""
        wait_until(
            lambda: all(point.is_over for point in points),
            _ANSWER_SECONDS,
            f"the broker has answered the request of each of {points}",
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
        await self._server.wait_closed()
        # Also connections that were accepted, and are not served yet.
        self._is_cut = True
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for connection in self._connections:
                connection.close()
            await asyncio.wait(others, timeout=_END_SECONDS)
        await asyncio.sleep(0)  # the transports are closed

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
                await self._hold_at(point, connection)
                # The client may have ended, and the end of the connection could overtake the
                # request: the broker would drop it.
                connection.late[_correlation_id(frame, 4)] = answered = asyncio.Event()
            connection.broker.write(struct.pack(">i", len(frame)) + frame)
            await connection.broker.drain()
            if point is not None and not point.is_answered:
                await answered.wait()
                point.is_over = True

    def _reached(self, frame: bytes) -> Point | None:
        """The point at which the request is caught."""
        if _api_key(frame) not in _FLEXIBLE:
            return None
        transaction = self._transactions.of(frame)
        if _is_commit(frame) and not transaction:
            self.counts.commits_repeated += 1
        for point in self._points:
            if point.is_of(frame, transaction):
                if point.passing == 0:
                    self._points.remove(point)
                    return point
                point.passing -= 1
        return None

    async def _hold_at(self, point: Point, connection: _Connection) -> None:
        point.client_port = connection.client_port
        point.is_caught = True
        await self._released.wait()

    async def _pass_answers(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        while True:
            frame = await _frame(reader)
            identity = _correlation_id(frame, 0)
            if identity in connection.late:
                connection.late.pop(identity).set()
            if identity in connection.swallow_reply_to:
                connection.swallow_reply_to.discard(identity)
                self.counts.replies_swallowed += 1
                if self._close_after_swallowing:
                    raise ConnectionAbortedError
                continue
            point = connection.catch_reply_to.pop(identity, None)
            if point is not None:
                await self._hold_at(point, connection)
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


def _api_key(frame: bytes) -> int:
    api_key: int = struct.unpack_from(">h", frame)[0]
    return api_key


def _is_flexible(frame: bytes) -> bool:
    api_key, version = struct.unpack_from(">hh", frame)
    return version >= _FLEXIBLE[api_key]


def transactional_id(frame: bytes) -> str | None:
    """Of a request of a transaction, in which it follows the client id. None: a producer without
    transactions."""
    [client_id_length] = struct.unpack_from(">h", frame, _CLIENT_ID_AT)
    at = _CLIENT_ID_AT + 2 + max(0, client_id_length)
    if _is_flexible(frame):
        at += 2  # the tagged fields, and the length
        length = frame[at - 1] - 1
    else:
        at += 2
        [length] = struct.unpack_from(">h", frame, at - 2)
    return None if length < 0 else frame[at : at + length].decode()


def _is_commit(frame: bytes) -> bool:
    """Whether it is an EndTxn request that commits."""
    return _api_key(frame) == Api.END_TXN and frame[-2 if _is_flexible(frame) else -1] == 1
