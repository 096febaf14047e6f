"""What can go wrong, as one tree: a class for each thing a caller can do differently.

StreamjoinError
├── SpecError          the spec is wrong: every problem at once, each with its field   (exit 2)
├── CheckpointError    the checkpoint does not accept this start                       (exit 1)
├── TopicError         a topic is missing or does not fit                              (exit 1)
├── BrokerError        no broker answers; trying again may help                        (exit 1)
├── QueryError         the running query failed; `retryable` says whether to try again (exit 1)
├── ConflictError    the query's state forbids the command; it names those allowed (exit 1)
├── JobUnavailableError   no job answers on the control socket                     (exit 1)
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


class BrokerError(StreamjoinError):
    code = "broker"
    retryable = True


class QueryError(StreamjoinError):
    code = "query"

    def __init__(self, message: str, *, retryable: bool) -> None:
        self.retryable = retryable
        super().__init__(message)


class ConflictError(StreamjoinError):
    code = "conflict"

    def __init__(self, message: str, *, allowed: list[str]) -> None:
        self.allowed = allowed
        super().__init__(message)


class JobUnavailableError(StreamjoinError):
    code = "job_unavailable"


class SetupError(StreamjoinError):
    code = "setup"
