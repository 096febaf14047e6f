"""What a user reads of an error that came through two languages."""

import socket

import pytest
from py4j.protocol import ERROR, Py4JError, get_return_value
from pyspark.errors import PySparkException
from pyspark.serializers import CPickleSerializer
from pyspark.util import _load_from_socket

from job.spark.failures import failure_of

OF_A_WORKER = """
  File "x.py", line 3, in <module>
Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times: PythonException:
Traceback (most recent call last):
  File "/srv/job/delivery/transactions.py", line 3, in __call__
    rows = 1 / 0
           ~~^~~
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_error_of_a_python_worker_is_one_line() -> None:
    assert "ZeroDivisionError: division by zero" == str(failure_of(RuntimeError(OF_A_WORKER), "b"))


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

    assert is_lost == failure_of(raised.value, "b").retryable
    assert is_lost == ("the JVM is gone" in str(failure_of(raised.value, "b")))


def test_error_that_is_not_of_the_jvm_is_not_tried_again() -> None:
    assert not failure_of(RuntimeError("no"), "b").retryable


class Throwable:
    """As much of Java's as is read of it."""

    def __init__(self, name: str, message: str) -> None:
        self._name, self._message = name, message

    def getMessage(self) -> str:  # noqa: N802 - Java's name
        return self._message

    def getCause(self) -> None:  # noqa: N802
        return None

    def getClass(self) -> "JavaClass":  # noqa: N802
        return JavaClass(self._name)

    def getStackTrace(self) -> list[object]:  # noqa: N802
        return []

    def toString(self) -> str:  # noqa: N802
        return f"{self._name}: {self._message}"


class JavaClass:
    def __init__(self, name: str) -> None:
        self._name = name

    def getName(self) -> str:  # noqa: N802
        return self._name

    def getSimpleName(self) -> str:  # noqa: N802
        return self._name.rpartition(".")[2]

    def getSuperclass(self) -> None:  # noqa: N802
        return None


def of_java(name: str, message: str) -> PySparkException:
    error = PySparkException("planted")
    error._origin = Throwable(name, message)  # type: ignore[attr-defined]
    return error


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
