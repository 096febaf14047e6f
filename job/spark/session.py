"""Starts and ends the JVM and the Spark session in it.

bin/spark-submit would first start a shell and a second JVM. It would not remove secrets from the
output of the JVM and would not end the JVM with the job, and it would pass Ctrl-C on to the JVM. So
there is no fallback to it. Private API of PySpark 4.3.0: see the package docstring.
"""

import ctypes
import logging
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from job.errors import QueryError, SetupError
from job.java_jar import JAVA_JAR
from job.jvm_command import JAVA_OPTIONS, class_archive_of, class_path_of, java
from job.logs import json_line
from job.plan.tuning import overriding_options
from job.redaction import Redaction
from job.settings import JobSettings, LogFormat
from job.spark.application import Application
from job.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # a second of imports, while the JVM starts

# An idle machine takes 1.2 s; shared continuous-integration machines take several times as long.
_GATEWAY_SECONDS = 90.0
_POLL_SECONDS = 0.01
# A cancelled task ends within milliseconds, unless it waits for a broker or a file system.
_TASKS_END_SECONDS = 2.0
# The JVM ends immediately or never: RocksDB's library waits for its threads when it is unloaded,
# and deadlocks if a cancelled task is still inside it.
_EXIT_SECONDS = 15.0
# A JVM that writes a class archive when it ends takes 20 s, on a busy machine more than 110.
_ARCHIVE_SECONDS = 600.0
_ARCHIVES = "-XX:ArchiveClassesAtExit"

# For PR_SET_PDEATHSIG the parent is the *thread* that started the child. This thread lives as long
# as the process.
_STARTER = ThreadPoolExecutor(1, thread_name_prefix="jvm-starter")
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class Jvm:
    """A JVM that waits for PySpark. The constructor does not wait until the JVM is up."""

    def __init__(self, settings: JobSettings, java_options: str, redaction: Redaction) -> None:
        """`java_options`: of the driver's JVM."""
        self._folder = Path(tempfile.mkdtemp(prefix="streamjoin-"))
        self._connection = self._folder / "connection"
        environment = {
            **os.environ,
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection),
            "SPARK_CONNECT_MODE": "0",
        }
        self._process = _STARTER.submit(
            subprocess.Popen,
            _command(settings, java_options),
            stdin=subprocess.PIPE,  # the JVM ends when this pipe breaks, however this process ends
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            # The query must end before its JVM: a signal to the job's process group, such as
            # Ctrl-C or `timeout`, must not reach the JVM.
            start_new_session=True,
            preexec_fn=_end_with_parent,
        ).result()
        self._session: SparkSession | None = None
        self._application: Application | None = None
        self._questions: Any = None
        """Py4J's client for `ask`. PySpark creates another one, with the session."""
        self._has_ended = False
        """Whether the query of the session has ended."""
        self._output = threading.Thread(
            target=_forward_output,
            args=[self._process.stdout, redaction, settings.log_format],
            name="jvm-log",
            daemon=True,
        )
        self._output.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def has_lost_its_session(self) -> bool:
        """Whether Spark has ended the session, for example because its cluster has ended it."""
        if self._session is None or not self.is_alive:
            return False
        from py4j.protocol import Py4JError

        try:
            return bool(self._session.sparkContext._jsc.sc().isStopped())
        except (Py4JError, OSError):  # the JVM has just ended
            return False

    def ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer of SqlWorker.java in this JVM (job/sql/worker.py); waits until it is up."""
        from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

        if self._questions is None:
            port, secret = self._gateway()
            java = JavaParameters(port=port, auth_token=secret, auto_field=True)
            self._questions = ClientServer(java, PythonParameters(port=0, eager_load=False))
        from job.spark.sql_questions import answer

        return answer(self._questions.jvm, question)

    def session(self, settings: JobSettings, conf: Mapping[str, str]) -> "SparkSession":
        """The Spark session; waits until the JVM is up.

        After `end_query` it is another session, in the same application if possible: a new
        application takes some seconds.
        """
        if self._session is None or self._has_ended:
            wanted = Application(settings.spark_master, {**conf, **_for_executors(settings)})
            self._session = self._next_session(wanted) or self._new_application(wanted)
            self._application, self._has_ended = wanted, False
        return self._session

    def another_session(self, conf: Mapping[str, str]) -> "SparkSession":
        """A session of the running application for a second query, next to that of `session`."""
        assert self._session is not None
        assert self._application is not None
        session = self._session.newSession()
        Application(self._application.master, conf).configure(session, self._application)
        return session

    def _next_session(self, wanted: Application) -> "SparkSession | None":
        """None: no application runs. One that cannot be used is ended."""
        ended, running = self._session, self._application
        if ended is None or running is None:
            return None
        if not wanted.can_follow(running):
            ended.stop()
            return None
        session = ended.newSession()
        wanted.configure(session, running)
        return session

    def _new_application(self, application: Application) -> "SparkSession":
        from pyspark.sql import SparkSession

        from job.spark.hadoop_settings import trim_hadoop_conf

        port, secret = self._gateway()
        os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = secret
        # Python of the check of executors (query/cluster.py), which the user may have set.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master(application.master).appName("streamjoin")
        for name, value in application.conf.items():
            builder = builder.config(name, value)
        logging.getLogger("py4j.clientserver").addFilter(_is_unreported)
        with _keep_sigint_handler():
            session = builder.getOrCreate()
        trim_hadoop_conf(session)
        return session

    def cancel_jobs(self) -> None:
        """Cancel all Spark jobs, for example those of state lookups."""
        if self._session is not None:
            self._session.sparkContext.cancelAllJobs()

    def end_query(self) -> None:
        """End what the query of the session has left: state lookups and state stores. Then
        `session` returns another session, also with another conf and master.

        Raises an exception if something of the query may remain: then close the JVM.
        """
        from job.spark.executors import running_task_count
        from job.spark.state_stores import close_state_stores

        session = self._session
        assert session is not None

        def has_no_task() -> bool:
            self.cancel_jobs()  # again, because a lookup runs several jobs one after another
            return running_task_count(session) == 0

        if not wait_until(has_no_task, _TASKS_END_SECONDS, _POLL_SECONDS):
            raise QueryError("a task that was cancelled has not ended", retryable=False)
        close_state_stores(session)
        self._has_ended = True

    def close(self) -> None:
        """End session and JVM. Harmless if they have ended already."""
        if self._session is not None and self.is_alive:
            self._session.stop()
        _forget_gateway()
        if self._process.stdin is not None:
            self._process.stdin.close()
        archives = _ARCHIVES in os.environ.get("JDK_JAVA_OPTIONS", "")
        try:
            self._process.wait(_ARCHIVE_SECONDS if archives else _EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.join(_EXIT_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _gateway(self) -> tuple[int, str]:
        """Port and secret of the JVM's py4j server."""
        wait_until(
            lambda: self._connection.exists() or not self.is_alive, _GATEWAY_SECONDS, _POLL_SECONDS
        )
        if not self._connection.exists():
            if self.is_alive:
                raise SetupError(
                    f"the JVM did not start within {_GATEWAY_SECONDS:.0f} s: check the free "
                    "CPU and memory of this machine, then start again"
                )
            raise SetupError(
                f"the JVM ended with exit code {self._process.returncode} before Spark started; "
                "its messages are above"
            )
        content = self._connection.read_bytes()
        port, length = struct.unpack(">ii", content[:8])
        return port, content[8 : 8 + length].decode()


def _forward_output(output: IO[bytes], redaction: Redaction, log_format: LogFormat) -> None:
    """Write the JVM's output without secrets: Spark prints the options of a source that fails."""
    with output:
        for line in output:
            text = redaction.scrubbed(line.decode(errors="replace"))
            sys.stderr.write(json_line(text) if log_format == "json" else text)
            sys.stderr.flush()


def _command(settings: JobSettings, java_options: str) -> list[str]:
    class_path = [*class_path_of(settings.jars), *_hadoop_settings()]
    if options := overriding_options(os.environ):
        raise SetupError(
            f"the environment variable _JAVA_OPTIONS contains {', '.join(options)}: Java applies "
            "it after the options of the job, and results would depend on it. Remove these options"
        )
    return [
        java(),
        *("-cp", ":".join(class_path)),
        f"-Xmx{settings.driver_memory}",
        *class_archive_of(settings.jars),
        *java_options.split(),
        *JAVA_OPTIONS,
        # Write crash reports to the log: the working folder may be read-only.
        *("-XX:+ErrorFileToStderr", "-XX:+UnlockDiagnosticVMOptions", "-XX:-DumpReplayDataOnError"),
        *_logging(settings),
        "org.apache.spark.deploy.SparkSubmit",
        *("--conf", f"spark.master={settings.spark_master}"),
        "pyspark-shell",
    ]


def _logging(settings: JobSettings) -> list[str]:
    folder = Path(__file__).parent
    option = f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"
    if settings.log_format == "auto":
        return [option]
    layout = (folder / "log4j2-line.json").as_uri()
    return [f"{option},{folder / 'log4j2-json.properties'}", f"-Dstreamjoin.logLine={layout}"]


def _for_executors(settings: JobSettings) -> dict[str, str]:
    """Settings that send Kafka's connector to the executors of a cluster."""
    if not settings.is_on_cluster:
        return {}
    jars = [*settings.jars.glob("*.jar"), *settings.jars.glob(str(JAVA_JAR))]
    return {"spark.jars": ",".join(str(jar.resolve()) for jar in jars)}


def _hadoop_settings() -> list[str]:
    """The folder with core-site.xml and hdfs-site.xml."""
    folder = os.environ.get("HADOOP_CONF_DIR")
    return [folder] if folder else []


def _end_with_parent() -> None:
    """Runs in the new process: makes the kernel kill the JVM when the job ends."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _is_unreported(record: logging.LogRecord) -> bool:
    """Whether to log an event of py4j.

    If a call of the JVM into Python fails with an error of the JVM, the caller gets that error, and
    the query reports it: for example the interrupt of a stop. py4j would log its stack trace, too.
    """
    from py4j.protocol import Py4JJavaError

    return record.exc_info is None or not isinstance(record.exc_info[1], Py4JJavaError)


@contextmanager
def _keep_sigint_handler() -> Iterator[None]:
    """Restore the handler. PySpark's SparkContext sets one that cancels all jobs, so that Ctrl-C
    would interrupt a batch."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _forget_gateway() -> None:
    """Allow PySpark to connect to another JVM later in this process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ.pop("PYSPARK_GATEWAY_PORT", None)
    os.environ.pop("PYSPARK_GATEWAY_SECRET", None)
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    # stop() clears these, but cannot be called if the JVM was killed.
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
