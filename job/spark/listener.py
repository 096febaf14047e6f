"""Spark's progress reports as JSON.

PySpark's listener reads each field of an event with a call into the JVM, some hundred per batch;
this one reads the JSON of the event with one call. Private API of PySpark 4.3.0: see the package
docstring. If it has changed, PySpark's listener is used.
"""

from typing import Any, Protocol

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from job.jvm_class import jvm_class
from job.spark.lost_hooks import report_lost_hook

LISTENER_WRAPPER = "org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper"


class ProgressListener(Protocol):
    """Called on a thread of py4j: must return quickly and never raise."""

    def batch(self, progress: str) -> None:
        """A batch ended; `progress` is the JSON of its StreamingQueryProgress."""

    def idle(self) -> None:
        """There was no new data."""


class Reports:
    """What Spark has reported of the queries of a session.

    Spark reports a batch on another thread, which may be after the end of the run.
    """

    def __init__(self) -> None:
        self._ended: set[str] = set()

    def are_complete(self, run_id: str) -> bool:
        """Whether the end of the run, and so each of its batches, is reported."""
        return run_id in self._ended

    def run_ended(self, run_id: str) -> None:
        self._ended.add(run_id)


def listen(spark: SparkSession, listener: ProgressListener) -> Reports:
    reports = Reports()
    try:
        _listen(spark, listener, reports)
    except Exception as error:
        spark.streams.addListener(_PublicListener(listener, reports))
        report_lost_hook("listener", error)
    return reports


def _listen(spark: SparkSession, listener: ProgressListener, reports: Reports) -> None:
    from pyspark.java_gateway import ensure_callback_server_started

    context = spark.sparkContext
    assert context._gateway is not None
    assert context._jvm is not None
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]  # PySpark's
    wrapper = jvm_class(context._jvm, LISTENER_WRAPPER)(_Listener(listener, reports))
    spark._jsparkSession.streams().addListener(wrapper)


class JavaListener:
    """Implements org.apache.spark.sql.streaming.PythonStreamingQueryListener, hence the names."""

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


class _Listener(JavaListener):
    def __init__(self, listener: ProgressListener, reports: Reports) -> None:
        self._listener = listener
        self._reports = reports

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._listener.batch(str(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: ARG002, N802
        self._listener.idle()

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._reports.run_ended(str(event.runId().toString()))


class _PublicListener(StreamingQueryListener):
    """The same on PySpark's public API."""

    def __init__(self, listener: ProgressListener, reports: Reports) -> None:
        self._listener = listener
        self._reports = reports

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        self._listener.batch(event.progress.json)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: ARG002, N802
        self._listener.idle()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self._reports.run_ended(str(event.runId))
