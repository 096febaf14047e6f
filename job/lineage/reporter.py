"""Sends the run events on a separate thread, so that the endpoint cannot delay the query.

Events that cannot be sent, or do not fit the queue, are dropped and counted. RUNNING events repeat
the content of START, so that a catalog recovers from a dropped event.
"""

import threading
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Protocol

import structlog

from job.lineage.reports import Outcome, RunReports
from job.plan.plan import JoinPlan
from job.redaction import Redaction

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

    from job.lineage.events import RunEvents

# A run has two events besides RUNNING; more are queued only while the endpoint hangs.
QUEUED_MAX = 100
# A stop waits no longer for the last event.
CLOSE_SECONDS = 5.0

_log = structlog.get_logger()


class Transport(Protocol):
    """Interface of OpenLineage's client."""

    def emit(self, event: "RunEvent") -> object: ...


class LineageReporter(RunReports):
    def __init__(
        self,
        events: "RunEvents",
        transport: Transport,
        redaction: Redaction,
        interval: timedelta,
    ) -> None:
        """`interval`: time between two RUNNING events."""
        self._events = events
        self._transport = transport
        self._redaction = redaction
        self._interval = interval
        self._queue: Queue[RunEvent | None] = Queue(QUEUED_MAX)
        self._lock = threading.Lock()
        self._results: Counter[str] = Counter()
        self._run_id: str | None = None
        self._is_failing = False
        self._thread = threading.Thread(target=self._deliver, name="lineage", daemon=True)
        self._thread.start()

    @property
    def counts(self) -> dict[str, int]:
        with self._lock:
            return {result: self._results[result] for result in ("sent", "dropped")}

    def start(self, run_id: str, plan: JoinPlan) -> None:
        self._events = self._events.of(plan)
        self._put(self._events.event("START", run_id, datetime.now(UTC)))
        self._run_id = run_id

    def end(self, outcome: Outcome, failure: str | None = None) -> None:
        run_id, self._run_id = self._run_id, None
        if run_id is not None:
            message = None if failure is None else self._redaction.scrubbed(failure)
            self._put(self._events.event(outcome.value, run_id, datetime.now(UTC), message))

    def close(self) -> None:
        with suppress(Full):  # the thread waits for the endpoint, and ends with the process
            self._queue.put_nowait(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            _log.warning("lineage_events_not_sent", events=self._queue.qsize())

    def _put(self, event: "RunEvent") -> None:
        try:
            self._queue.put_nowait(event)
        except Full:
            self._count("dropped")

    def _deliver(self) -> None:
        while True:
            try:
                event = self._queue.get(timeout=self._interval.total_seconds())
            except Empty:
                self._send_running()
                continue
            if event is None:
                return
            self._send(event)

    def _send_running(self) -> None:
        run_id = self._run_id
        if run_id is not None:
            self._send(self._events.event("RUNNING", run_id, datetime.now(UTC)))

    def _send(self, event: "RunEvent") -> None:
        try:
            self._transport.emit(event)
        except Exception as error:
            # Any failure of the client or its libraries: the next event may be sent.
            self._count("dropped")
            if not self._is_failing:
                _log.warning("lineage_events_dropped", reason=str(error))
            self._is_failing = True
        else:
            self._count("sent")
            self._is_failing = False

    def _count(self, result: str) -> None:
        with self._lock:
            self._results[result] += 1
