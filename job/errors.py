"""The errors of the job as one tree: a class for each error that a caller handles differently.

StreamjoinError
├── SpecError             the spec is invalid; lists every problem with its field      (exit 2)
├── CheckpointError       the checkpoint and the spec or settings are incompatible
│   └── FrozenSpecError   the spec changes frozen settings                              (exit 2)
├── TopicError            a topic is missing or unsuitable
├── RetentionError        Kafka deleted records before they were read
├── SecurityError         Kafka or the registry denies access, or a secret cannot be read
├── RegistryError         the schema registry does not answer (retryable)
├── BrokerError           no broker answers (retryable)
├── QueryError            the running query failed (`retryable` is set per failure)
├── DeliveryError         a batch could not be written (`retryable` is set per failure)
├── UnexpectedError       an error whose cause is not known (retryable)
├── BadRecordError        a record cannot be read, and the spec has `on_bad_record: fail`
├── FencedError           another job took over the query
├── CheckpointInUseError  another job runs on the checkpoint
├── ConflictError         the call is not allowed in the query's state; lists the allowed calls
├── RequestError          an invalid request
├── BusyError             too many concurrent requests (retryable)
├── CancelledError        the client disconnected before the answer
├── ExpiredError          a command was received after its deadline
├── JobUnavailableError   no job answers on the control socket
└── SetupError            the machine or its settings are unsuitable, e.g. no Java

ProposalError, SimulationError and UnknownSchemaError are in the modules that raise them. Every
command exits with 1 on these errors, with 2 if the spec is invalid.
"""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_SPEC_OF_COMMAND = re.compile(r"(`streamjoin [a-z -]+ )SPEC\b")


def with_spec_file(text: str, path: Path) -> str:
    """`text` with `path` in place of SPEC in its commands. The code that writes a message does not
    know the file; commands and the job replace SPEC before they print the message."""
    return _SPEC_OF_COMMAND.sub(lambda match: match[1] + shlex.quote(str(path)), text)


class PicklableError(Exception):
    """Base of errors that another process can raise again. Subclasses may have any constructor."""

    def __reduce__(self) -> tuple[Callable[..., Exception], tuple[Any, ...], dict[str, Any]]:
        # Exception would call the constructor with `args`, which contains only the message.
        return _without_constructor, (type(self), *self.args), vars(self)


def _without_constructor(kind: type[Exception], *args: object) -> Exception:
    return kind.__new__(kind, *args)


class StreamjoinError(PicklableError):
    """Base of all errors that users read. The message names the cause, its place and the fix."""

    code = "error"
    exit_code = 1
    retryable = False

    def name_spec_file(self, path: Path) -> None:
        """Apply `with_spec_file` to the message."""
        self.args = (with_spec_file(str(self), path),)


@dataclass(frozen=True)
class Problem:
    """One problem of one field of the spec."""

    field: str
    """Dotted path in the YAML, e.g. `left.watermark_delay`."""
    value: str | None
    """Value in the spec, as text. None: there is no value, or it may be a secret."""
    message: str
    """The problem and its fix."""

    def __str__(self) -> str:
        value = f" (written: {self.value})" if self.value is not None else ""
        return f"{self.field}: {self.message}{value}"


class SpecError(StreamjoinError):
    """The spec is invalid."""

    code = "spec"
    exit_code = 2

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))

    def name_spec_file(self, path: Path) -> None:
        super().name_spec_file(path)
        self.problems = [
            replace(each, message=with_spec_file(each.message, path)) for each in self.problems
        ]


class CheckpointError(StreamjoinError):
    code = "checkpoint"


class FrozenSpecError(CheckpointError):
    """The spec has other values of settings that its checkpoint freezes."""

    exit_code = 2


class TopicError(StreamjoinError):
    code = "topic"


class RetentionError(StreamjoinError):
    """Not retryable: a user must decide to continue without the deleted records."""

    code = "retention"


class SecurityError(StreamjoinError):
    """Not retryable: a password, a certificate or a permission must be fixed."""

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


class UnexpectedError(StreamjoinError):
    """An error that no rule of the job explains. The message contains its class and origin.

    Retryable: the same batch runs again, so nothing is lost, and the next attempt may succeed.
    """

    code = "unexpected"
    retryable = True


class BadRecordError(StreamjoinError):
    code = "bad_record"


class CheckpointInUseError(StreamjoinError):
    code = "checkpoint_in_use"


class FencedError(StreamjoinError):
    """This job is the older one of two jobs on one checkpoint."""

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
