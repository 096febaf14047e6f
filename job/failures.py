"""Why a query failed, in words, and whether trying again may help."""

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from job.errors import QueryError, StreamjoinError

_MESSAGE_CHARS_MAX = 2_000

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


def failure_of(error: Exception, bootstrap_servers: str) -> StreamjoinError:
    """`error`, raised while the query was starting or running, as one a user can read."""
    if isinstance(error, StreamjoinError):
        return error
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return QueryError("the JVM is gone: it was killed or ran out of memory", retryable=True)
    throwable = _throwable(error)
    if throwable is None:
        return QueryError(_shortened(str(error)), retryable=False)
    causes = list(_causes(throwable))
    root = causes[-1]
    message = _shortened(f"{root.getClass().getSimpleName()}: {root.getMessage()}")
    if any(_passes(cause) for cause in causes):
        return QueryError(f"lost Kafka at {bootstrap_servers}: {message}", retryable=True)
    return QueryError(message, retryable=False)


def _throwable(error: Exception) -> Any:
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    return getattr(error, "_origin", None) if isinstance(error, PySparkException) else None


def _causes(throwable: Any) -> Iterator[Any]:
    while throwable is not None:
        yield throwable
        throwable = throwable.getCause()


def _passes(throwable: Any) -> bool:
    kind = throwable.getClass()
    while kind is not None:
        if kind.getName() in _PASSING:
            return True
        kind = kind.getSuperclass()
    return False


def _shortened(text: str) -> str:
    """Without the JVM's stack trace, and no longer than a person reads."""
    lines = [line for line in text.splitlines() if not line.startswith(("\tat ", "    at "))]
    joined = "\n".join(lines).strip()
    return joined if len(joined) <= _MESSAGE_CHARS_MAX else joined[: _MESSAGE_CHARS_MAX - 1] + "…"
