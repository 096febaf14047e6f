"""Causes of failures of a query as errors, and whether a retry may help."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from job.errors import (
    BadRecordError,
    CheckpointError,
    QueryError,
    RegistryError,
    SecurityError,
    StreamjoinError,
    UnexpectedError,
)
from job.installation.clone import COMMAND
from job.spark.error_origin import origin_in_java, origin_in_python, origin_in_text

_MESSAGE_CHARS_MAX = 2_000
_PYTHON_TRACE = "Traceback (most recent call last)"
_MORE_MEMORY = (
    "if this repeats, look for OOM kills by kernel or container and give its machine more memory"
)

# The broker is unreachable, slow, or elects leaders. Kafka documents RetriableException as
# transient.
_TRANSIENT = (
    "org.apache.kafka.common.errors.RetriableException",
    "org.apache.kafka.common.errors.TimeoutException",
    "org.apache.kafka.common.errors.DisconnectException",
    "java.net.ConnectException",
    "java.net.SocketTimeoutException",
    "java.util.concurrent.TimeoutException",
)

# The next offset of the checkpoint does not exist. The next start checks all partitions
# (retention.py) and reports the lost offsets and the remedy.
_OFFSET_LOST = (
    "org.apache.kafka.clients.consumer.OffsetOutOfRangeException",
    "org.apache.spark.sql.kafka010.KafkaIllegalStateException",
)

# The rest of the message is about the consumer of Spark.
_FETCH_POSITION = re.compile(
    r"FetchPosition\{offset=(\d+),.* out of range for partition (\S+)-(\d+)"
)

# Spark's error classes for a checkpoint file that is missing or corrupt.
_DAMAGE = (
    "CANNOT_LOAD_STATE_STORE",
    "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED",
    "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
    "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
)

# No jar has a client for the scheme of the checkpoint.
_NO_CLIENT = (
    "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.",
    "org.apache.hadoop.fs.UnsupportedFileSystemException",
)

# No jar has the login of kafka.security.mechanism AWS_MSK_IAM.
_NO_LOGIN = ("Class software.amazon.msk.",)

# The error of the SQL function raise_error, which no expression of a spec may call.
_SPARK_ERROR = "org.apache.spark.SparkRuntimeException"
_RAISED = "USER_RAISED_EXCEPTION"

# Java's messages for ENOSPC and EDQUOT.
_DISK_FULL = ("No space left on device", "Disk quota exceeded")

# Java's messages for EROFS and EACCES.
_CANNOT_WRITE = ("Read-only file system", "(Permission denied)")

# In real-time mode all tasks run at the same time. The task that reads the rows of a failed task
# can fail first, and Spark then reports its error alone.
_LOST_WRITER = ("Connection to streaming shuffle writer", "io.netty.channel.")

# In real-time mode Spark runs no task again.
_LOST_EXECUTOR = ("ExecutorLostFailure",)

# Py4J's message for a call without an answer. If the JVM answers with an error, a trace follows.
_NO_ANSWER = re.compile(r"An error occurred while calling [^\s]+")

# Packages of Hadoop's clients for remote stores.
_STORES = ("org.apache.hadoop.ipc.", "org.apache.hadoop.hdfs.", "org.apache.hadoop.fs.s3a.")

# Errors of a store that a retry does not fix.
_PERMANENT = (
    "org.apache.hadoop.security.AccessControlException",
    "org.apache.hadoop.hdfs.protocol.QuotaExceededException",
    "java.nio.file.FileSystemException",
    "java.io.FileNotFoundException",
)

# Superclasses of all errors of Kafka's client about logins, TLS and ACLs.
_SECURITY = (
    "org.apache.kafka.common.errors.AuthenticationException",
    "org.apache.kafka.common.errors.AuthorizationException",
)

# A failure of formats/registry.py, on an executor that needs a schema.
_REGISTRY = ("streamjoin.RegistryException",)


def failure_of(error: Exception, bootstrap_servers: str) -> StreamjoinError:
    """The error for users of an `error` that was raised while the query was starting or running."""
    if isinstance(error, StreamjoinError):
        return error
    throwable = _throwable(error)
    if throwable is None:
        if any(_is_lost_jvm(cause) for cause in _chain(error)):
            return jvm_is_gone()
        text = str(error)
        origin = origin_in_text(text) or origin_in_python(error)
        return _unexpected(_named(type(error).__name__, text), origin)
    causes = list(_causes(throwable))
    failures = (rule(causes, bootstrap_servers) for rule in _RULES)
    known = next((failure for failure in failures if failure is not None), None)
    if known is not None:
        return known
    root = causes[-1]
    origin = origin_in_text(str(root.getMessage())) or origin_in_java(root)
    return _unexpected(_root_message(causes), origin)


def jvm_is_gone() -> QueryError:
    return QueryError(
        "the JVM is gone: it was killed or ran out of memory. The job starts another one; "
        f"{_MORE_MEMORY}",
        retryable=True,
    )


def _unexpected(message: str, origin: str | None) -> UnexpectedError:
    return UnexpectedError(f"unexpected error {message}" + (f" (at {origin})" if origin else ""))


def cause_of_class(error: Exception, name: str) -> Any:
    """The first cause of the Java class `name` or a subclass. None: no cause has this class."""
    causes = _causes(_throwable(error))
    return next((cause for cause in causes if _is_any(cause, (name,))), None)


def _root_message(causes: Sequence[Any]) -> str:
    root = causes[-1]
    return _named(str(root.getClass().getSimpleName()), str(root.getMessage()))


def _named(kind: str, message: str) -> str:
    """The message with the class of the error. A Python error names its class itself."""
    return _shortened(message if _PYTHON_TRACE in message else f"{kind}: {message}")


def _security(causes: Sequence[Any], bootstrap_servers: str) -> StreamjoinError | None:
    refusal = next((cause for cause in causes if _is_any(cause, _SECURITY)), None)
    if refusal is None:
        return None
    return SecurityError(
        f"Kafka at {bootstrap_servers} refuses access: {_shortened(str(refusal.getMessage()))}. "
        "Correct kafka.security, or grant the missing ACLs to its user, then `restart`"
    )


def _registry(causes: Sequence[Any], _: str) -> StreamjoinError | None:
    for cause in causes:
        if _is_any(cause, _REGISTRY):
            kind = SecurityError if cause.refusesLogin() else RegistryError
            return kind(_shortened(str(cause.getMessage())))
    return None


def _lost_offset(causes: Sequence[Any], _: str) -> StreamjoinError | None:
    if not any(_is_any(cause, _OFFSET_LOST) for cause in causes):
        return None
    root = _root_message(causes)
    if (position := _FETCH_POSITION.search(root)) is not None:
        offset, topic, partition = position.groups()
        root = f"{topic}/{partition} has no offset {offset} any more"
    return QueryError(
        f"records were deleted before they were read: {root}. The next start names the lost "
        "offsets and the command that continues without them",
        retryable=True,
    )


def _no_client(causes: Sequence[Any], _: str) -> StreamjoinError | None:
    if not str(causes[-1].toString()).startswith(_NO_CLIENT):
        return None
    return CheckpointError(
        f"no client for the checkpoint's file system ({_root_message(causes)}): copy its jars "
        f"into the folder of STREAMJOIN_JARS. `{COMMAND} setup s3` downloads those of S3"
    )


def _no_login(causes: Sequence[Any], _: str) -> StreamjoinError | None:
    if not _has_message(causes, _NO_LOGIN):
        return None
    return SecurityError(
        "kafka.security.mechanism AWS_MSK_IAM needs Amazon's login for Java: copy the jars of the "
        f"set msk into the folder of STREAMJOIN_JARS. `{COMMAND} setup msk` downloads them"
    )


def _disk_full(causes: Sequence[Any], _: str) -> StreamjoinError | None:
    if not _has_message(causes, _DISK_FULL):
        return None
    return QueryError(
        f"the disk is full, that of the checkpoint or that of temporary files: "
        f"{_root_message(causes)}. Free some space, then `restart`: nothing is lost",
        retryable=False,
    )


def _cannot_write(causes: Sequence[Any], _: str) -> StreamjoinError | None:
    if not _has_message(causes, _CANNOT_WRITE):
        return None
    return QueryError(
        f"the checkpoint's file system does not accept writes: {_root_message(causes)}. Mount it "
        "read-write or grant this user write permission, then `restart`: nothing is lost",
        retryable=False,
    )


def _lost_executor(causes: Sequence[Any], _: str) -> StreamjoinError | None:
    if not _has_message(causes, _LOST_EXECUTOR):
        return None
    return QueryError(
        f"an executor was lost, killed or out of memory: {_root_message(causes)}. The job runs the "
        f"batch again; {_MORE_MEMORY}",
        retryable=True,
    )


def _lost_store(causes: Sequence[Any], _: str) -> StreamjoinError | None:
    lost = next((cause for cause in causes if _is_of_unreachable_store(cause)), None)
    if lost is None:
        return None
    reason = _shortened(str(lost.getMessage()))  # the root cause may not name the store
    return QueryError(
        f"lost the checkpoint's file system: {reason}. The job retries until it answers: check its "
        "servers and the network",
        retryable=True,
    )


def _lost_kafka(causes: Sequence[Any], bootstrap_servers: str) -> StreamjoinError | None:
    if not any(_is_any(cause, _TRANSIENT) for cause in causes):
        return None
    return QueryError(
        f"lost Kafka at {bootstrap_servers}: {_root_message(causes)}. The job retries until it "
        "answers: check the brokers and the network",
        retryable=True,
    )


def _lost_writer(causes: Sequence[Any], _: str) -> StreamjoinError | None:
    if not _has_message(causes, _LOST_WRITER):
        return None
    return QueryError(
        "a task of the interval failed, and Spark reports only that its rows are missing. The log "
        "contains the cause; if it persists, the next run fails with that cause",
        retryable=True,
    )


def _damage(causes: Sequence[Any], _: str) -> StreamjoinError | None:
    damage = [cause for cause in causes if _has_message([cause], _DAMAGE)]
    if not damage:
        return None
    return CheckpointError(
        f"the checkpoint is damaged: {_shortened(str(damage[-1].getMessage()))} "
        f"({_root_message(causes)}). Restore a backup (`streamjoin checkpoint restore`), or reset; "
        "`streamjoin checkpoint verify` checks all of it"
    )


def _raised(causes: Sequence[Any], _: str) -> StreamjoinError | None:
    """A bad record of a query that fails at the first one: `raise_error` in its SQL."""
    for cause in causes:
        if _is_any(cause, (_SPARK_ERROR,)) and cause.getCondition() == _RAISED:
            return BadRecordError(_shortened(str(cause.getMessageParameters()["errorMessage"])))
    return None


Rule = Callable[[Sequence[Any], str], StreamjoinError | None]

# The first rule that matches the causes decides. An unreachable store, for example, also causes
# a TimeoutException.
_RULES: tuple[Rule, ...] = (
    _raised,
    _security,
    _registry,
    _lost_offset,
    _no_client,
    _no_login,
    _disk_full,
    _cannot_write,
    _lost_executor,
    _lost_store,
    _lost_kafka,
    _lost_writer,
    _damage,
)


def _has_message(causes: Sequence[Any], parts: Sequence[str]) -> bool:
    return any(part in str(cause.getMessage()) for cause in causes for part in parts)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes and contexts."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _is_lost_jvm(error: BaseException) -> bool:
    """Whether a connection of this process to its JVM broke or could not be opened.

    While it reads a result, PySpark then raises an UnboundLocalError instead (pyspark/util.py,
    local_connect_and_auth within a `finally`).
    """
    if isinstance(error, PySparkException):
        return bool(error.getCondition() == "CANNOT_OPEN_SOCKET")
    if type(error) is Py4JError:
        return _NO_ANSWER.fullmatch(str(error)) is not None
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
    """Whether the class of the throwable, or a superclass, has one of the names."""
    kind = throwable.getClass()
    while kind is not None:
        if kind.getName() in names:
            return True
        kind = kind.getSuperclass()
    return False


def _is_of_unreachable_store(throwable: Any) -> bool:
    """Whether the checkpoint's store did not answer, or is still starting."""
    return (
        _is_any(throwable, ("java.io.IOException",))
        and not _is_any(throwable, _PERMANENT)
        and any(frame.getClassName().startswith(_STORES) for frame in throwable.getStackTrace())
    )


def _shortened(text: str) -> str:
    """The text without the stack traces of JVM and Python, at most _MESSAGE_CHARS_MAX long."""
    lines = [line for line in text.splitlines() if not line.startswith(("\tat ", "    at "))]
    traces = [n for n, line in enumerate(lines) if _PYTHON_TRACE in line]
    if traces:  # The first line that is not indented names the error.
        lines = [line for line in lines[traces[0] + 1 :] if line and not line.startswith(" ")][:1]
    joined = "\n".join(lines).strip()
    return joined if len(joined) <= _MESSAGE_CHARS_MAX else joined[: _MESSAGE_CHARS_MAX - 1] + "…"
