"""Runs code between the start of a query and its first batch, for which Spark has no public call.

Spark starts the thread of a query and returns, so that it may plan the first batch before the
caller acquires the progress lock. Before the first batch, Spark calls onQueryStarted on the query's
thread and waits for its return. During this call another thread acquires the lock.

Private API of Spark and PySpark 4.3.0: see the package docstring. The behaviour is tested by
tests/integration/test_change.py.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job.jvm_class import jvm_class
from job.spark.listener import LISTENER_WRAPPER, JavaListener

_LOCK_SECONDS = 60.0

Locked = Callable[[], None]
Action = Callable[[StreamingQuery, Locked], object]
"""Acquires the progress lock of the query, then calls the second argument. Spark then continues up
to the lock."""


class BeforeFirstBatch:
    """Runs an action on the query that starts inside `active`."""

    def __init__(self, spark: SparkSession, action: Action) -> None:
        self._spark = spark
        self._action = action
        self._done = threading.Event()
        self._failure: Exception | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        streams: Any = self._spark._jsparkSession.streams()
        jvm: Any = self._spark._jvm
        listener = jvm_class(jvm, LISTENER_WRAPPER)(_StartListener(self._run))
        streams.addListener(listener)
        try:
            yield
        finally:
            streams.removeListener(listener)

    def wait(self) -> None:
        """Wait for the end of the action. Raises the failure of the action."""
        if not self._done.wait(_LOCK_SECONDS):
            raise TimeoutError("Spark has not reported the start of the query")
        if self._failure is not None:
            raise self._failure

    def _run(self, query_id: str) -> None:
        """Return once the action has acquired the lock, or has failed."""
        locked = threading.Event()

        def act() -> None:
            try:
                query = self._spark._jsparkSession.streams().get(query_id)
                self._action(StreamingQuery(query), locked.set)
            except Exception as error:
                self._failure = error
            finally:
                self._done.set()
                locked.set()

        # On another thread: a lock that the query's own thread holds would not block that thread.
        threading.Thread(target=act, name="before-first-batch", daemon=True).start()
        locked.wait(_LOCK_SECONDS)


class _StartListener(JavaListener):
    def __init__(self, run: Callable[[str], None]) -> None:
        self._run = run

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        self._run(event.id().toString())
