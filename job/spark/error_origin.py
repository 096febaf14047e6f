"""The place in the code where an error was raised, for errors whose cause is not known."""

import re
from collections.abc import Sequence
from traceback import FrameSummary, extract_tb
from typing import Any

_PYTHON_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_OWN_FILE = re.compile(r"(?:^|/)(job/.+\.py)$")
_JAVA_PACKAGES = ("streamjoin.", "org.apache.spark.", "org.apache.kafka.")


def origin_in_python(error: BaseException) -> str | None:
    """The innermost frame of the job's code; without one, the innermost frame. None: the error was
    not raised."""
    return _place([_parts(frame) for frame in extract_tb(error.__traceback__)])


def origin_in_text(trace: str) -> str | None:
    """As `origin_in_python`, from the printed stack trace of another process. None: there is no
    trace."""
    return _place([match.groups() for match in _PYTHON_FRAME.finditer(trace)])


def origin_in_java(throwable: Any) -> str | None:
    """The innermost frame of the job's Java classes, Spark or Kafka; without one, the innermost
    frame. None: there is no stack trace."""
    frames = list(throwable.getStackTrace())
    known = [frame for frame in frames if str(frame.getClassName()).startswith(_JAVA_PACKAGES)]
    for frame in known[:1] or frames[:1]:
        place = f"{frame.getFileName()}:{frame.getLineNumber()}"
        return f"{frame.getClassName()}.{frame.getMethodName()}({place})"
    return None


def _parts(frame: FrameSummary) -> tuple[str, str, str]:
    return frame.filename, str(frame.lineno), frame.name


def _place(frames: Sequence[Sequence[str]]) -> str | None:
    """`frames`: file, line and function, the innermost last."""
    own = [(found[1], *frame[1:]) for frame in frames if (found := _OWN_FILE.search(frame[0]))]
    for file, line, function in own[-1:] or frames[-1:]:
        return f"{file}:{line} in {function}"
    return None
