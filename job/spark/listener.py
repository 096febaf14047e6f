"""Spark's reports on the query, as they come.

PySpark's own listener classes fetch each field of an event by a call into the JVM, some hundred a
batch; this one fetches the event's JSON and nothing else.
"""

from typing import Any, Protocol

from py4j.java_gateway import JavaObject
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession


class ProgressListener(Protocol):
    """Who is told. Called on a thread of py4j: be quick, and never raise."""

    def batch(self, progress: str) -> None:
        """A batch ended; `progress` is the JSON of its StreamingQueryProgress."""

    def idle(self) -> None:
        """There was nothing to do."""


def listen(spark: SparkSession, reports: ProgressListener) -> None:
    context = spark.sparkContext
    assert context._gateway is not None
    assert context._jvm is not None
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]  # PySpark's
    streaming = context._jvm.org.apache.spark.sql.streaming
    wrapper = streaming.PythonStreamingQueryListenerWrapper(_Listener(reports))
    spark._jsparkSession.streams().addListener(wrapper)


class _Listener:
    """org.apache.spark.sql.streaming.PythonStreamingQueryListener, hence the names."""

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)

    def __init__(self, reports: ProgressListener) -> None:
        self._reports = reports

    def onQueryStarted(self, event: JavaObject) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: JavaObject) -> None:  # noqa: N802
        self._reports.batch(_json(event))

    def onQueryIdle(self, event: JavaObject) -> None:  # noqa: ARG002, N802
        self._reports.idle()

    def onQueryTerminated(self, event: JavaObject) -> None:  # noqa: N802
        pass


def _json(event: Any) -> str:
    return str(event.progress().json())
