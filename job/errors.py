"""What can go wrong, as one tree: a class for each thing a caller can do differently.

StreamjoinError
├── SpecError          the spec is wrong: every problem at once, each with its field   (exit 2)
├── CheckpointError    the checkpoint does not accept this start                       (exit 1)
├── TopicError         a topic is missing or does not fit                              (exit 1)
├── RetentionError     records are gone that were not read yet                         (exit 1)
├── SecurityError      Kafka or the registry refuses us, or a secret cannot be read   (exit 1)
├── RegistryError      the schema registry does not answer; trying again may help     (exit 1)
├── BrokerError        no broker answers; trying again may help                        (exit 1)
├── QueryError         the running query failed; `retryable` says whether to try again (exit 1)
├── DeliveryError      a batch could not be written; `retryable` as above              (exit 1)
├── BadRecordError     a record cannot be read, and the spec says to fail             (exit 1)
├── FencedError        another job has taken over the query                           (exit 1)
├── CheckpointInUseError  another job runs on the checkpoint                           (exit 1)
├── ConflictError      the query's state forbids the call; it names the verbs allowed (exit 1)
├── RequestError       what was asked makes no sense                                   (exit 1)
├── BusyError          too much is asked at once; later it works                       (exit 1)
├── CancelledError     whoever asked has gone                                          (exit 1)
├── ExpiredError       a command was read after its time                               (exit 1)
├── JobUnavailableError   no job answers on the control socket                         (exit 1)
└── SetupError         this machine lacks something, e.g. Java                         (exit 1)
"""

from dataclasses import dataclass


class StreamjoinError(Exception):
    """Base of all errors a user is meant to read; the message says what, where and what to do."""

    code = "error"
    exit_code = 1
    retryable = False


@dataclass(frozen=True)
class Problem:
    """One thing wrong with one field of the spec."""

    field: str
    """Dotted path in the YAML, e.g. `left.watermark_delay`."""
    value: str | None
    """What was written there, as text; None where nothing was."""
    message: str
    """What is wrong, and the remedy."""

    def __str__(self) -> str:
        written = f" (written: {self.value})" if self.value is not None else ""
        return f"{self.field}: {self.message}{written}"


class SpecError(StreamjoinError):
    """The spec cannot be run as written."""

    code = "spec"
    exit_code = 2

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class CheckpointError(StreamjoinError):
    code = "checkpoint"


class TopicError(StreamjoinError):
    code = "topic"


class RetentionError(StreamjoinError):
    """Trying again does not help: somebody has to say that the join goes on without them."""

    code = "retention"


class SecurityError(StreamjoinError):
    """Trying again does not help: a password, a certificate or a right must be put in order."""

    code = "security"


class RegistryError(StreamjoinError):
    code = "registry"
    retryable = True


class BrokerError(StreamjoinError):
    code = "broker"
    retryable = True


class QueryError(StreamjoinError):
    code = "query"

    def __init__(self, message: str, *, retryable: bool) -> None:
        self.retryable = retryable
        super().__init__(message)


class DeliveryError(StreamjoinError):
    code = "delivery"

    def __init__(self, message: str, *, retryable: bool) -> None:
        self.retryable = retryable
        super().__init__(message)


class BadRecordError(StreamjoinError):
    code = "bad_record"


class CheckpointInUseError(StreamjoinError):
    code = "checkpoint_in_use"


class FencedError(StreamjoinError):
    """Of two jobs on one checkpoint this is the one that came first."""

    code = "fenced"


class ConflictError(StreamjoinError):
    code = "conflict"

    def __init__(self, message: str, *, allowed: list[str]) -> None:
        self.allowed = allowed
        super().__init__(message)


class RequestError(StreamjoinError):
    code = "request"


class BusyError(StreamjoinError):
    code = "busy"
    retryable = True

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)


class CancelledError(StreamjoinError):
    code = "cancelled"


class ExpiredError(StreamjoinError):
    code = "expired"


class JobUnavailableError(StreamjoinError):
    code = "job_unavailable"


class SetupError(StreamjoinError):
    code = "setup"
