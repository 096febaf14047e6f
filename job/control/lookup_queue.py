"""Queue of state lookups: one runs at a time, in the order of arrival.

A lookup reads state with one Spark task, which takes a core from the query. This module does not
depend on Spark, or on what a lookup reads.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from job.errors import BusyError, CancelledError

# Each waiting lookup holds a thread and a connection of the job.
WAITING_MAX = 8
# After a lookup none runs for as long as it took, so that the query has the core half of the time.
# This is the longest pause, because users wait.
PAUSE_SECONDS_MAX = 2.0
_POLL_SECONDS = 0.05


class LookupQueue:
    """Safe for calls from many threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._is_running = False
        self._pause_ends = 0.0
        self._last_seconds = 0.0
        self._background: Event | None = None
        self._is_closed = False

    def close(self) -> None:
        """Cancels the background lookup. Other lookups end when their caller disconnects."""
        with self._changed:
            self._is_closed = True
            if self._background is not None:
                self._background.set()

    @contextmanager
    def turn(self, caller_gone: Event) -> Iterator[None]:
        """Waits until all earlier lookups have ended, and cancels a background lookup.

        Raises BusyError if WAITING_MAX lookups already wait, CancelledError once `caller_gone` is
        set.
        """
        self._wait_for_turn(caller_gone)
        with self._measure():
            yield

    @contextmanager
    def background_turn(self) -> Iterator[Event]:
        """A turn that is cancelled by the event as soon as another lookup arrives.

        Raises BusyError if a lookup runs or waits, or during the pause after one.
        """
        cancel = Event()
        with self._changed:
            if self._is_running or self._waiting or self._pause_seconds() > 0:
                raise BusyError(
                    "another state lookup runs or waits: try again later",
                    retry_after_seconds=max(1.0, self._pause_seconds()),
                )
            if self._is_closed:
                raise CancelledError("the job is ending")
            self._is_running, self._background = True, cancel
        with self._measure():
            yield cancel

    def _wait_for_turn(self, caller_gone: Event) -> None:
        ticket = object()
        with self._changed:
            if len(self._waiting) >= WAITING_MAX:
                raise BusyError(
                    f"{WAITING_MAX} state lookups already wait: try again later",
                    retry_after_seconds=max(1.0, WAITING_MAX * self._last_seconds),
                )
            self._waiting.append(ticket)
            if self._background is not None:
                self._background.set()
            try:
                while self._is_running or self._waiting[0] is not ticket or self._pause_seconds():
                    if caller_gone.is_set():
                        raise CancelledError("the caller closed the connection")
                    self._changed.wait(_POLL_SECONDS)
                self._is_running = True
            finally:
                self._waiting.remove(ticket)

    @contextmanager
    def _measure(self) -> Iterator[None]:
        """Measures a running lookup, and begins the pause after it."""
        started = time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                ended = time.monotonic()
                self._last_seconds = ended - started
                if self._background is None:
                    self._pause_ends = ended + min(self._last_seconds, PAUSE_SECONDS_MAX)
                self._is_running, self._background = False, None
                self._changed.notify_all()

    def _pause_seconds(self) -> float:
        return max(0.0, self._pause_ends - time.monotonic())
