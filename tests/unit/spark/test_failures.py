"""What a user reads of an error that came through two languages."""

import re
import socket
from dataclasses import dataclass

import pytest
from py4j.protocol import ERROR, Py4JError, get_return_value
from pyspark.errors import PySparkException
from pyspark.serializers import CPickleSerializer
from pyspark.util import _load_from_socket

from job.errors import UnexpectedError
from job.query.retries import retry_delay
from job.spark import failures
from job.spark.failures import failure_of

OF_A_CALL = """
An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/srv/py4j/clientserver.py", line 7, in _call_proxy
  File "/srv/job/delivery/sink.py", line 5, in __call__
  File "/srv/job/delivery/sink.py", line 3, in _deliver
    rows = divide(0)
           ~~^~~
  File "/srv/library/division.py", line 9, in divide
ZeroDivisionError: division by zero

\tat py4j.Protocol.getReturnValue
"""
"""The error of a call from Spark to Python."""


def test_error_of_a_call_to_python_is_one_line() -> None:
    assert (
        "unexpected error ZeroDivisionError: division by zero "
        "(at job/delivery/sink.py:3 in _deliver)"
    ) == str(failure_of(RuntimeError(OF_A_CALL), "b"))


def test_results_that_cannot_be_fetched_as_the_jvm_has_ended_mean_to_try_again() -> None:
    with socket.socket() as port_of_nobody:
        port_of_nobody.bind(("127.0.0.1", 0))
        port = port_of_nobody.getsockname()[1]

    # PySpark's own defect: the message is about a variable.
    with (
        pytest.raises(UnboundLocalError) as raised,
        _load_from_socket((port, "secret"), CPickleSerializer()),
    ):
        pass

    failure = failure_of(raised.value, "b")
    assert failure.retryable
    assert "the JVM is gone" in str(failure)


@pytest.mark.parametrize(("answer", "is_lost"), [(ERROR, True), (f"{ERROR}sno such method", False)])
def test_call_that_the_jvm_does_not_answer_means_to_try_again(answer: str, is_lost: bool) -> None:
    with pytest.raises(Py4JError) as raised:
        get_return_value(answer, None, "z:streamjoin.TransactionWriter", "write")

    assert is_lost == ("the JVM is gone" in str(failure_of(raised.value, "b")))


def test_unexpected_error_has_its_class_and_its_origin() -> None:
    with pytest.raises(TypeError) as raised:
        retry_delay(1, "none")  # type: ignore[arg-type]  # planted
    failure = failure_of(raised.value, "b")

    assert isinstance(failure, UnexpectedError)
    assert failure.retryable
    place = r"\(at job/query/retries\.py:\d+ in retry_delay\)"
    assert re.fullmatch(f"unexpected error TypeError: .*{place}", str(failure))
    assert "unexpected error RuntimeError: no" == str(failure_of(RuntimeError("no"), "b"))


@dataclass
class Frame:
    """StackTraceElement"""

    class_name: str
    method: str = "run"

    def getClassName(self) -> str:  # noqa: N802 - Java's name
        return self.class_name

    def getMethodName(self) -> str:  # noqa: N802
        return self.method

    def getFileName(self) -> str:  # noqa: N802
        return "File.scala"

    def getLineNumber(self) -> int:  # noqa: N802
        return 5


class Throwable:
    """As much of Java's as is read of it."""

    def __init__(self, name: str, message: str, *classes: str) -> None:
        self._name, self._message, self._classes = name, message, classes

    def getMessage(self) -> str:  # noqa: N802 - Java's name
        return self._message

    def getCause(self) -> None:  # noqa: N802
        return None

    def getClass(self) -> "JavaClass":  # noqa: N802
        return JavaClass(self._name)

    def getStackTrace(self) -> list[Frame]:  # noqa: N802
        return [Frame(name) for name in self._classes]

    def toString(self) -> str:  # noqa: N802
        return f"{self._name}: {self._message}"

    def refusesLogin(self) -> bool:  # noqa: N802 - of RegistryException.java
        return False

    def getCondition(self) -> str:  # noqa: N802 - of SparkRuntimeException
        return "USER_RAISED_EXCEPTION"

    def getMessageParameters(self) -> dict[str, str]:  # noqa: N802
        return {"errorMessage": self._message}


class JavaClass:
    def __init__(self, name: str) -> None:
        self._name = name

    def getName(self) -> str:  # noqa: N802
        return self._name

    def getSimpleName(self) -> str:  # noqa: N802
        return self._name.rpartition(".")[2]

    def getSuperclass(self) -> None:  # noqa: N802
        return None


def of_java(name: str, message: str, *classes: str) -> PySparkException:
    error = PySparkException("planted")
    error._origin = Throwable(name, message, *classes)  # type: ignore[attr-defined]
    return error


def test_lost_offset_is_named_without_the_consumer_of_spark() -> None:
    position = (
        "Fetch position FetchPosition{offset=31, offsetEpoch=Optional.empty, "
        "currentLeader=LeaderAndEpoch{leader=Optional[localhost:9092 (id: 1 rack: null)], "
        "epoch=0}} is out of range for partition ad-clicks-0"
    )

    failure = failure_of(of_java(failures._OFFSET_LOST[0], position), "localhost:9092")

    assert str(failure).startswith(
        "records were deleted before they were read: ad-clicks/0 has no offset 31 any more. The "
    )


@pytest.mark.parametrize(
    ("classes", "origin"),
    [
        ((), ""),
        (("java.lang.A", "java.lang.B"), " (at java.lang.A.run(File.scala:5))"),
        (
            ("java.lang.A", "org.apache.spark.sql.C", "org.apache.spark.D"),
            " (at org.apache.spark.sql.C.run(File.scala:5))",
        ),
        (("scala.A", "streamjoin.StreamJoin"), " (at streamjoin.StreamJoin.run(File.scala:5))"),
    ],
)
def test_unexpected_error_of_java_has_its_origin(classes: tuple[str, ...], origin: str) -> None:
    failure = failure_of(of_java("java.lang.NullPointerException", "null", *classes), "b")

    assert failure.retryable
    assert f"unexpected error NullPointerException: null{origin}" == str(failure)


def test_unexpected_error_of_a_call_to_python_has_its_origin_in_python() -> None:
    error = of_java("py4j.Py4JException", OF_A_CALL, "org.apache.spark.A")

    assert (
        "unexpected error ZeroDivisionError: division by zero "
        "(at job/delivery/sink.py:3 in _deliver)"
    ) == str(failure_of(error, "b"))


SPARK = "org.apache.spark.SparkException"
# By rule: an error, its remedy, and whether it is retried.
RULES: dict[str, tuple[PySparkException, str, bool]] = {
    "_raised": (
        of_java("org.apache.spark.SparkRuntimeException", "To continue, set `on_bad_record: drop`"),
        "To continue, set `on_bad_record: drop`",
        False,
    ),
    "_security": (
        of_java("org.apache.kafka.common.errors.AuthorizationException", "no"),
        "Correct kafka.security, or grant the missing ACLs to its user, then `restart`",
        False,
    ),
    "_registry": (
        of_java("streamjoin.RegistryException", "the registry does not answer"),
        "the registry does not answer",
        True,
    ),
    "_lost_offset": (
        of_java("org.apache.kafka.clients.consumer.OffsetOutOfRangeException", "7"),
        "The next start names the lost offsets and the command that continues without them",
        True,
    ),
    "_no_client": (
        of_java("org.apache.hadoop.fs.UnsupportedFileSystemException", "abfs"),
        "copy its jars into the folder of STREAMJOIN_JARS",
        False,
    ),
    "_no_login": (
        of_java(
            "org.apache.kafka.common.config.ConfigException",
            "Class software.amazon.msk.auth.iam.IAMClientCallbackHandler could not be found.",
        ),
        "copy the jars of the set msk into the folder of STREAMJOIN_JARS",
        False,
    ),
    "_disk_full": (
        of_java("java.io.IOException", "No space left on device"),
        "Free some space, then `restart`: nothing is lost",
        False,
    ),
    "_cannot_write": (
        of_java("java.io.IOException", "Read-only file system"),
        "grant this user write permission, then `restart`: nothing is lost",
        False,
    ),
    "_lost_executor": (
        of_java(SPARK, "ExecutorLostFailure"),
        "The job runs the batch again; if this repeats, look for OOM kills",
        True,
    ),
    "_lost_store": (
        of_java("java.io.IOException", "refused", "org.apache.hadoop.hdfs.DFSClient"),
        "The job retries until it answers",
        True,
    ),
    "_lost_kafka": (
        of_java("org.apache.kafka.common.errors.TimeoutException", "no answer"),
        "The job retries until it answers: check the brokers and the network",
        True,
    ),
    "_lost_writer": (
        of_java(SPARK, "io.netty.channel.Closed"),
        "if it persists, the next run fails with that cause",
        True,
    ),
    "_damage": (
        of_java(SPARK, "[CANNOT_LOAD_STATE_STORE] x"),
        "Restore a backup (`streamjoin checkpoint restore`), or reset",
        False,
    ),
}


@pytest.mark.parametrize("rule", [rule.__name__ for rule in failures._RULES])
def test_each_known_cause_has_a_remedy(rule: str) -> None:
    error, remedy, is_retried = RULES[rule]
    failure = failure_of(error, "b")

    assert not isinstance(failure, UnexpectedError)
    assert remedy in str(failure)
    assert is_retried is failure.retryable


@pytest.mark.parametrize("reason", ["Read-only file system", "Permission denied"])
def test_checkpoint_that_cannot_be_written_has_a_remedy(reason: str) -> None:
    error = of_java("java.io.FileNotFoundException", f"/c/offsets/.7.tmp ({reason})")

    failure = failure_of(error, "b")
    assert not failure.retryable
    assert (
        f"does not accept writes: FileNotFoundException: /c/offsets/.7.tmp ({reason}). Mount"
        in (str(failure))
    )


def test_task_that_lost_the_writer_of_its_rows_is_retried_as_its_error_hides_the_cause() -> None:
    message = "Connection to streaming shuffle writer 194 closed before termination"
    failure = failure_of(of_java("org.apache.spark.SparkException", message), "b")

    assert failure.retryable
    assert "The log contains the cause" in str(failure)


def test_lost_executor_is_retried() -> None:
    message = "Task 0 in stage 23.0 failed 1 times: ExecutorLostFailure (executor 2 exited)"
    failure = failure_of(of_java("org.apache.spark.SparkException", message), "b")

    assert failure.retryable
    assert "an executor was lost" in str(failure)


def test_task_whose_connection_to_a_lost_executor_was_reset_is_retried() -> None:
    message = "io.netty.channel.unix.Errors$NativeIoException: Connection reset by peer"
    failure = failure_of(of_java("org.apache.spark.SparkException", message), "b")

    assert failure.retryable
    assert "The log contains the cause" in str(failure)
