"""The JVM and the Spark session in it: started with no detour, ended with nothing left behind."""

import ctypes
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

from job.errors import SetupError
from job.real_time.processor_jar import PROCESSOR_JAR
from job.redaction import Redaction
from job.settings import JobSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # a second of imports that the JVM is not to wait for

_OPENED = (
    "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect",
    "java.base/java.io", "java.base/java.net", "java.base/java.nio", "java.base/java.util",
    "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref", "java.base/sun.nio.ch", "java.base/sun.nio.cs",
    "java.base/sun.security.action", "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)  # fmt: skip

# What spark-submit adds (org.apache.spark.launcher.JavaModuleOptions), but for a module of vectors
# that Java calls incubating and warns of at each start: nothing here multiplies matrices.
JAVA_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    # From Java 24 on Arrow cannot be used without.
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)

# An idle machine takes 1.2 s; shared continuous-integration machines several times that.
_GATEWAY_SECONDS = 90.0
_POLL_SECONDS = 0.01
# It ends at once, or never: RocksDB's library waits for its threads when it is unloaded, and where
# a cancelled task is still inside it, they wait for each other.
_EXIT_SECONDS = 15.0
# Of one that writes a class archive at its end: 20 s, on a busy machine more than 60.
_ARCHIVE_SECONDS = 110.0
_ARCHIVES = "-XX:ArchiveClassesAtExit"

# Linux means the *thread* that started the child when it says parent. This one lives as long as
# the process does.
_STARTER = ThreadPoolExecutor(1, thread_name_prefix="jvm-starter")
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

# Beside the jars: the classes of a join, mapped into memory instead of read from jars, where
# somebody has made it (deploy/local/class_archive.py).
CLASS_ARCHIVE = "classes.jsa"


class Jvm:
    """A JVM that waits for PySpark. Starting returns at once, so that other work can go on.

    bin/spark-submit would start a shell and a second JVM first, only to find out this command.
    """

    def __init__(
        self, settings: JobSettings, conf: Mapping[str, str], redaction: Redaction
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="streamjoin-"))
        self._connection = self._folder / "connection"
        environment = {
            **os.environ,
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection),
            "SPARK_CONNECT_MODE": "0",
        }
        self._process = _STARTER.submit(
            subprocess.Popen,
            _command(settings, conf),
            stdin=subprocess.PIPE,  # the JVM begins to end when this pipe breaks, however we end
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            # The query ends before its JVM: a signal to the job's process group, such as Ctrl-C
            # or `timeout`, must not reach the JVM and Spark's Python workers.
            start_new_session=True,
            preexec_fn=_end_with_parent,
        ).result()
        self._session: SparkSession | None = None
        self._said = threading.Thread(
            target=_pass_on, args=[self._process.stdout, redaction], name="jvm-log", daemon=True
        )
        self._said.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def has_lost_its_session(self) -> bool:
        """Whether Spark has ended the session by itself, as when a cluster gives it up."""
        if self._session is None or not self.is_alive:
            return False
        from py4j.protocol import Py4JError

        try:
            return bool(self._session.sparkContext._jsc.sc().isStopped())
        except (Py4JError, OSError):  # it has just died
            return False

    def session(self, settings: JobSettings, conf: Mapping[str, str]) -> "SparkSession":
        """The Spark session; waits for the JVM where it is still starting."""
        if self._session is None:
            from pyspark.sql import SparkSession

            port, secret = self._gateway()
            os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
            os.environ["PYSPARK_GATEWAY_SECRET"] = secret
            # Spark's Python workers; on a cluster they may have theirs elsewhere.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            builder = SparkSession.builder.master(settings.spark_master).appName("streamjoin")
            for name, value in {**conf, **_for_executors(settings)}.items():
                builder = builder.config(name, value)
            with _sigint_handler_kept():
                self._session = builder.getOrCreate()
        return self._session

    def close(self) -> None:
        """End session and JVM. Harmless when they have ended already."""
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
        self._said.join(_EXIT_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _gateway(self) -> tuple[int, str]:
        deadline = time.monotonic() + _GATEWAY_SECONDS
        while not self._connection.exists():
            if not self.is_alive:
                raise SetupError(
                    f"the JVM ended with exit code {self._process.returncode} before Spark was up; "
                    "its messages are above"
                )
            if time.monotonic() > deadline:
                raise SetupError(f"the JVM did not come up within {_GATEWAY_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
        content = self._connection.read_bytes()
        port, length = struct.unpack(">ii", content[:8])
        return port, content[8 : 8 + length].decode()


def _pass_on(said: IO[bytes], redaction: Redaction) -> None:
    """What the JVM says, without secrets: Spark tells a source's options when it fails."""
    with said:
        for line in said:
            sys.stderr.write(redaction.scrubbed(line.decode(errors="replace")))
            sys.stderr.flush()


def spark_jars() -> Path:
    """The folder with the jars of PySpark, Hadoop's among them; found without loading PySpark."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    return Path(pyspark.origin).parent / "jars"


def _command(settings: JobSettings, conf: Mapping[str, str]) -> list[str]:
    if not any(settings.jars.glob("spark-sql-kafka*.jar")):
        raise SetupError(
            f"Spark's Kafka connector is not in {settings.jars}: run `make setup`, "
            "or set STREAMJOIN_JARS to the folder that holds it"
        )
    return [
        _java(),
        *("-cp", ":".join(_class_path(settings))),
        f"-Xmx{settings.driver_memory}",
        *_class_archive(settings.jars / CLASS_ARCHIVE),
        *conf["spark.driver.extraJavaOptions"].split(),
        *JAVA_OPTIONS,
        # The report of a crash goes where all messages go: the working folder may be read-only.
        *("-XX:+ErrorFileToStderr", "-XX:+UnlockDiagnosticVMOptions", "-XX:-DumpReplayDataOnError"),
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
        "org.apache.spark.deploy.SparkSubmit",
        *("--conf", f"spark.master={settings.spark_master}"),
        "pyspark-shell",
    ]


def _class_path(settings: JobSettings) -> list[str]:
    """The class archive fits a class path that begins as the one that it was made with."""
    return [
        f"{settings.jars}/*",
        f"{spark_jars()}/*",
        str(settings.jars / PROCESSOR_JAR),
        *_hadoop_settings(),
    ]


def _for_executors(settings: JobSettings) -> dict[str, str]:
    """On a cluster they get Kafka's connector from here; in this JVM it is on the class path."""
    if not settings.is_on_cluster:
        return {}
    jars = [*settings.jars.glob("*.jar"), *settings.jars.glob(str(PROCESSOR_JAR))]
    return {"spark.jars": ",".join(str(jar.resolve()) for jar in jars)}


def _hadoop_settings() -> list[str]:
    """The folder with core-site.xml and hdfs-site.xml: where a store is, how it is spoken to."""
    told = os.environ.get("HADOOP_CONF_DIR")
    return [told] if told else []


def _class_archive(archive: Path) -> list[str]:
    """A JVM of another version, or with other jars, cannot use it, goes on without, and says so in
    words that help nobody."""
    if not archive.exists():
        return []
    silent = ("cds", "cds+dynamic", "class+path")
    return [f"-XX:SharedArchiveFile={archive}", *(f"-Xlog:{tag}=off" for tag in silent)]


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise SetupError(
            "no Java found: install a Java runtime 17 or later "
            "(Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
        )
    return java


def _end_with_parent() -> None:
    """Runs in the new process: the kernel kills the JVM once the job has ended."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def _sigint_handler_kept() -> Iterator[None]:
    """PySpark's SparkContext sets a handler that cancels all jobs: Ctrl-C would cut a batch."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _forget_gateway() -> None:
    """Lets PySpark connect to another JVM later in this process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ.pop("PYSPARK_GATEWAY_PORT", None)
    os.environ.pop("PYSPARK_GATEWAY_SECRET", None)
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    # stop() clears these, but it cannot be called when the JVM was killed.
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
