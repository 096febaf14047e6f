"""Python imports this module at its start if this folder is on PYTHONPATH. The job then connects to
the JVM of the worker (tests/integration/jvms.py) and does not start another one.

The job gets a new Spark session in the Spark context of that JVM. At its end it stops its queries
and keeps Spark running. Nothing else of the job differs.
"""

import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

FOLDER = Path(os.environ.get("STREAMJOIN_TEST_JVM", "/nonexistent"))
POLL_SECONDS = 0.05


def replace_jvm() -> None:
    import psutil

    from job.errors import QueryError
    from job.redaction import Redaction
    from job.settings import JobSettings
    from job.spark import session

    class SharedJvm(session.Jvm):
        def __init__(self, settings: JobSettings, java_options: str, redaction: Redaction) -> None:
            del settings, java_options
            self._connection = FOLDER / "connection"
            self._jvm = psutil.Process(int((FOLDER / "pid").read_text()))
            self._session: SparkSession | None = None
            self._application = None
            self._questions: Any = None
            self._has_ended = False
            self._ended = threading.Event()
            threading.Thread(target=self._forward_log, args=[redaction], daemon=True).start()

        def _forward_log(self, redaction: Redaction) -> None:
            """Write the lines that the JVM logs after this call, without secrets."""
            with (FOLDER / "log").open() as log:
                log.seek(0, os.SEEK_END)
                while not self._ended.wait(POLL_SECONDS):
                    for line in log:
                        sys.stderr.write(redaction.scrubbed(line))
                    sys.stderr.flush()

        @property
        def pid(self) -> int:
            return self._jvm.pid

        @property
        def is_alive(self) -> bool:
            return self._jvm.is_running() and self._jvm.status() != psutil.STATUS_ZOMBIE

        def session(self, settings: JobSettings, conf: Mapping[str, str]) -> "SparkSession":
            from pyspark import SparkContext

            SparkContext._initialize_context = shared_context  # type: ignore[method-assign]
            return super().session(settings, conf)

        def end_query(self) -> None:
            raise QueryError("the Spark context is shared", retryable=False)

        def close(self) -> None:
            if self._session is not None:
                if self.is_alive and sys.orig_argv[3] == "run":
                    leave(self._session)
                disconnect()
            self._ended.set()

    session.Jvm = SharedJvm  # type: ignore[misc]


def shared_context(context: "SparkContext", conf: Any) -> Any:
    """The Spark context of the JVM, which its first job creates; stands in for the constructor."""
    jvm: Any = context._jvm
    gateway: Any = context._gateway
    # When the JVM has collected a proxy, it sends the number of the proxy to Python: numbers of an
    # earlier job must not be those of this job's proxies.
    gateway.gateway_property.pool.next_id = time.time_ns()
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    sessions.clearDefaultSession()
    sessions.clearActiveSession()
    shared = jvm.org.apache.spark.SparkContext.getOrCreate(conf)
    return jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(shared)


def leave(session: "SparkSession") -> None:
    """Stop the queries of the session, and call this process no more.

    A separate JVM would end now. Spark's maintenance of the state stores would continue here, and
    write snapshots into a checkpoint that has been moved since.
    """
    streams = session._jsparkSession.streams()
    for query in streams.active():
        query.stop()
    for listener in streams.listListeners():
        streams.removeListener(listener)
    stores = "org.apache.spark.sql.execution.streaming.state.StateStore"
    getattr(session._jvm, f"{stores}$").__getattr__("MODULE$").stop()


def disconnect() -> None:
    """As `_forget_gateway` in job/spark/session.py, but both ends keep their connections: when py4j
    closes them, it waits for their readers."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        os.environ.pop(name, None)
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def load_failpoints() -> None:
    """Python imports only one module of the name sitecustomize."""
    from importlib.util import module_from_spec, spec_from_file_location

    path = Path(__file__).parents[1] / "failpoints" / "sitecustomize.py"
    spec = spec_from_file_location("failpoints", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(module_from_spec(spec))


COMMANDS = {"run", "checkpoint", "state", "change"}
"""Commands that use Spark. All but `run` start no query, so they can use the JVM of a running
job."""

if sys.orig_argv[1:3] == ["-m", "job"] and sys.orig_argv[3] in COMMANDS:
    replace_jvm()
    if sys.orig_argv[3] in {"run", "change"} and "STREAMJOIN_TEST_FAILPOINT" in os.environ:
        load_failpoints()
