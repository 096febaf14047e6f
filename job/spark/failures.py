"""Why a query failed, in words, and whether trying again may help."""

import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from job.errors import (
    CheckpointError,
    QueryError,
    RegistryError,
    SecurityError,
    StreamjoinError,
)

_MESSAGE_CHARS_MAX = 2_000
_PYTHON_TRACE = "Traceback (most recent call last)"

# The broker is away, slow or changing leaders: all of it passes. Of the class RetriableException
# Kafka itself says the same.
_PASSING = (
    "org.apache.kafka.common.errors.RetriableException",
    "org.apache.kafka.common.errors.TimeoutException",
    "org.apache.kafka.common.errors.DisconnectException",
    "java.net.ConnectException",
    "java.net.SocketTimeoutException",
    "java.util.concurrent.TimeoutException",
)

# A record is not where the checkpoint says that the next one is. The next start looks at all
# partitions (retention.py), and tells what is gone and what to do.
_GONE = (
    "org.apache.kafka.clients.consumer.OffsetOutOfRangeException",
    "org.apache.spark.sql.kafka010.KafkaIllegalStateException",
)

# What Spark calls it when a file of the checkpoint is missing or spoilt and cannot be mended.
_DAMAGE = (
    "CANNOT_LOAD_STATE_STORE",
    "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED",
    "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
    "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
)

# A scheme that no jar knows.
_NO_CLIENT = (
    "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.",
    "org.apache.hadoop.fs.UnsupportedFileSystemException",
)

# What Java passes on of the operating system's ENOSPC and EDQUOT.
_DISK_IS_FULL = ("No space left on device", "Disk quota exceeded")

# And of EROFS and EACCES.
_CANNOT_WRITE = ("Read-only file system", "(Permission denied)")

# Where Hadoop's clients for stores on other machines have their code.
_STORES = ("org.apache.hadoop.ipc.", "org.apache.hadoop.hdfs.", "org.apache.hadoop.fs.s3a.")

# Of a store's errors those that stay until somebody does something.
_STAYING = (
    "org.apache.hadoop.security.AccessControlException",
    "org.apache.hadoop.hdfs.protocol.QuotaExceededException",
    "java.nio.file.FileSystemException",
    "java.io.FileNotFoundException",
)

# Superclasses of all that Kafka's client says of logins, TLS and rights.
_REFUSALS = (
    "org.apache.kafka.common.errors.AuthenticationException",
    "org.apache.kafka.common.errors.AuthorizationException",
)


# How a Python worker names what formats/registry.py has raised there.
_OF_REGISTRY = re.compile(r"^job\.errors\.(RegistryError|SecurityError): (.*)$", re.MULTILINE)


def failure_of(error: Exception, bootstrap_servers: str) -> StreamjoinError:
    """`error`, raised while the query was starting or running, as one a user can read."""
    if isinstance(error, StreamjoinError):
        return error
    throwable = _throwable(error)
    if throwable is None:
        if any(_is_of_the_jvm_s_end(each) for each in _chain(error)):
            return QueryError("the JVM is gone: it was killed or ran out of memory", retryable=True)
        return QueryError(_shortened(str(error)), retryable=False)
    causes = list(_causes(throwable))
    refusal = next((cause for cause in causes if _is_any(cause, _REFUSALS)), None)
    if refusal is not None:
        return SecurityError(
            f"Kafka at {bootstrap_servers} refuses: {_shortened(str(refusal.getMessage()))}. "
            "Put kafka.security, or what its user may do, in order, then `restart`"
        )
    if (of_registry := _of_registry(causes)) is not None:
        return of_registry
    root = causes[-1]
    message = _shortened(f"{root.getClass().getSimpleName()}: {root.getMessage()}")
    if any(_is_any(cause, _GONE) for cause in causes):
        return QueryError(f"records are gone that were to be read: {message}", retryable=True)
    if str(root.toString()).startswith(_NO_CLIENT):
        return CheckpointError(
            f"no jar here knows the checkpoint's file system ({message}): put those of its client "
            "into the folder of STREAMJOIN_JARS; docs/checkpoint-stores.md names them"
        )
    if any(sign in str(cause.getMessage()) for cause in causes for sign in _DISK_IS_FULL):
        return QueryError(
            f"the disk is full, the checkpoint's or the one for temporary files: {message}. Make "
            "room, then `restart`: nothing is lost",
            retryable=False,
        )
    if any(sign in str(cause.getMessage()) for cause in causes for sign in _CANNOT_WRITE):
        return QueryError(
            f"the checkpoint's file system does not accept writes: {message}. Mount it read-write "
            "or give this user the right to write there, then `restart`: nothing is lost",
            retryable=False,
        )
    if any(_is_of_a_worker(cause) for cause in causes):
        return QueryError(
            f"Spark's Python workers are gone, killed or out of memory: {message}", retryable=True
        )
    away = next((cause for cause in causes if _is_of_a_store_that_is_away(cause)), None)
    if away is not None:
        said = _shortened(str(away.getMessage()))  # the root of it may not name the store
        return QueryError(f"lost the checkpoint's file system: {said}", retryable=True)
    if any(_is_any(cause, _PASSING) for cause in causes):
        return QueryError(f"lost Kafka at {bootstrap_servers}: {message}", retryable=True)
    damage = [c for c in causes if any(sign in str(c.getMessage()) for sign in _DAMAGE)]
    if damage:
        said = _shortened(str(damage[-1].getMessage()))
        return CheckpointError(
            f"the checkpoint is damaged: {said} ({message}). Restore a backup (`streamjoin "
            "checkpoint restore`), or reset; `streamjoin checkpoint verify` reads all of it"
        )
    return QueryError(message, retryable=False)


def _of_registry(causes: list[Any]) -> StreamjoinError | None:
    """What the schema registry has, or has not, said to a Python worker."""
    for cause in causes:
        if found := _OF_REGISTRY.search(str(cause.getMessage())):
            kind = RegistryError if found[1] == "RegistryError" else SecurityError
            return kind(_shortened(found[2]))
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it was raised from or for."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _is_of_the_jvm_s_end(error: BaseException) -> bool:
    """Whether a connection of this process to its JVM broke, or could not be made any more.

    Fetching a result PySpark then raises an UnboundLocalError in its place (pyspark/util.py,
    local_connect_and_auth within a `finally`).
    """
    if isinstance(error, PySparkException):
        return bool(error.getCondition() == "CANNOT_OPEN_SOCKET")
    return isinstance(error, Py4JNetworkError | ConnectionError | EOFError)


def _throwable(error: Exception) -> Any:
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    return getattr(error, "_origin", None) if isinstance(error, PySparkException) else None


def _causes(throwable: Any) -> Iterator[Any]:
    while throwable is not None:
        yield throwable
        throwable = throwable.getCause()


def _is_any(throwable: Any, names: tuple[str, ...]) -> bool:
    """Whether its class, or one that this extends, has one of the names."""
    kind = throwable.getClass()
    while kind is not None:
        if kind.getName() in names:
            return True
        kind = kind.getSuperclass()
    return False


def _is_of_a_worker(throwable: Any) -> bool:
    """Whether the connection to a Python worker broke: Python code raises no IOException."""
    return _is_any(throwable, ("java.io.IOException",)) and any(
        frame.getClassName().startswith("org.apache.spark.api.python.")
        for frame in throwable.getStackTrace()
    )


def _is_of_a_store_that_is_away(throwable: Any) -> bool:
    """Whether the checkpoint's store was asked and did not answer, or is only starting."""
    return (
        _is_any(throwable, ("java.io.IOException",))
        and not _is_any(throwable, _STAYING)
        and any(frame.getClassName().startswith(_STORES) for frame in throwable.getStackTrace())
    )


def _shortened(text: str) -> str:
    """Without the stack traces of JVM and Python, and no longer than a person reads."""
    lines = [line for line in text.splitlines() if not line.startswith(("\tat ", "    at "))]
    traces = [n for n, line in enumerate(lines) if _PYTHON_TRACE in line]
    if traces:  # of Spark's Python workers; the first line that is not indented names the error
        lines = [line for line in lines[traces[0] + 1 :] if line and not line.startswith(" ")][:1]
    joined = "\n".join(lines).strip()
    return joined if len(joined) <= _MESSAGE_CHARS_MAX else joined[: _MESSAGE_CHARS_MAX - 1] + "…"
