"""The errors of a call on the control socket that the job does not answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from job.errors import JobUnavailableError
from job.protocol import calls
from job.protocol.calls import Command, Request

# A status takes 10 kB plus 100 bytes per topic partition, a past batch 4 kB.
RESPONSE_BYTES_MAX = 16 * 1024 * 1024
# Calls for which the job reads its checkpoint with Spark, or plans a spec.
SlowCall = (
    calls.State
    | calls.Explain
    | calls.StateCount
    | calls.SpecCall
    | calls.ReadSpec
    | calls.CheckUndo
)


@contextmanager
def unavailability(path: Path, deadline_seconds: float, request: Request) -> Iterator[None]:
    """Raises every failure of the connection as a JobUnavailableError with its fix."""
    try:
        yield
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise JobUnavailableError(
            f"no job answers on {path}: start it with `streamjoin run`, "
            "or set STREAMJOIN_SOCKET to the path of the job's socket"
        ) from error
    except PermissionError as error:
        raise JobUnavailableError(
            f"permission denied for {path}: use the user that runs the job"
        ) from error
    except (TimeoutError, BlockingIOError) as error:
        remedy = (
            "the call was cancelled; repeat it when the query has less load, "
            "or increase STREAMJOIN_LOOKUP_SECONDS"
            if isinstance(request, SlowCall)
            else "it hangs or is overloaded; check its log, or restart its process"
        )
        raise JobUnavailableError(
            f"the job on {path} did not answer within {deadline_seconds:g} s: "
            f"{remedy}{_expiry_note(request)}"
        ) from error
    except OSError as error:
        raise JobUnavailableError(
            f"the job on {path} did not answer ({error}): check its log{_expiry_note(request)}"
        ) from error
    except ValueError as error:  # asyncio's error for a line that is too long
        raise JobUnavailableError(
            f"the answer on {path} is longer than {RESPONSE_BYTES_MAX:,} bytes: "
            "request fewer rows (`limit`)"
        ) from error


@contextmanager
def same_version(path: Path, request: Request) -> Iterator[None]:
    """Raises JobUnavailableError if the job's answer does not match the model."""
    try:
        yield
    except ValidationError as error:
        raise JobUnavailableError(
            f"the answer on {path} is incomplete or of another version: check the job's log, "
            f"and run the same version of job and service{_expiry_note(request)}"
        ) from error


def _expiry_note(request: Request) -> str:
    """Note for a command without an answer: the job does not execute it later. Empty: the request
    is not a command."""
    if not isinstance(request, Command):
        return ""
    return f". If the job has not executed {request.call} yet, it will not: the command has expired"
