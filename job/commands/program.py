"""Runs the commands as a program: its standard streams, and the errors that no command reports."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from job.installation.clone import SETUP_COMMAND

_SPARK = {"pyspark", "py4j"}


def run_program(app: Callable[[], object]) -> None:
    """Raises SystemExit: 0, 1 or 2."""
    _prepare_streams()
    with _report_errors():
        try:
            app()
        finally:
            # Otherwise Python writes the rest, and an error ends the process with code 120.
            sys.stdout.flush()


def _prepare_streams() -> None:
    """Open the closed ones: Python has None for them, and the next file would get their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115  # stays open
    # Values of the output topic are UTF-8, whatever the charset of the machine. The name of a file
    # may be no text.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


@contextmanager
def _report_errors() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _SPARK:
            raise
        message = "this command needs Spark, and pyspark is not installed"
        _end(f"{message}: run `pip install 'streamjoin[job]'`, then `{SETUP_COMMAND}`")
    except BrokenPipeError:
        _discard_output()
        raise SystemExit(1) from None
    except OSError as error:
        _discard_output()
        failed = "reading or writing" if error.filename is None else os.fsdecode(error.filename)
        reason = error.strerror or str(error)
        if isinstance(error, (ConnectionError, TimeoutError)):
            _end(f"cannot connect: {reason}. Check that the server runs, and its address")
        _end(
            f"{failed}: {reason}. Check the path, the rights of this user, and the free "
            "space where the file, or standard output, is written"
        )


def _end(message: str) -> None:
    typer.echo(message, err=True)
    raise SystemExit(1) from None


def _discard_output() -> None:
    """Let Python write the output that is left to nowhere when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
