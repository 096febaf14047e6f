"""A process that answers questions about SQL with Spark's own parser, analyzer and optimizer.

SqlWorker.java has no Spark session. It refuses what a spec may not use (AllowedSql.java). The
process has a limit of memory, and each question a deadline: a hostile expression costs the process,
never the caller.
"""

import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import IO, Any, Self

from job.errors import SetupError
from job.jvm_command import JAVA_OPTIONS, class_archive_of, class_path_of, java

_MAIN = "streamjoin.SqlWorker"
HEAP_MB = 256
"""Enough for questions about expressions."""
_SECONDS = 30.0
_OF_OTHER_JVMS = {"JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"}
"""Variables with options that Java adds, e.g. a larger heap for the job."""


class CostError(SetupError):
    """An answer needed too much time or memory. The process of the worker has ended."""


class _EndedError(SetupError):
    """The process has ended for another reason."""


class SqlWorker:
    """Safe for calls from many threads. The first question starts the process; also the first one
    after its end."""

    def __init__(self, jars: Path, *, seconds: float = _SECONDS, heap_mb: int = HEAP_MB) -> None:
        """`jars`: the folder with the jars of the job. `seconds`: time for an answer."""
        self._jars = jars
        self._seconds = seconds
        self._heap_mb = heap_mb
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._turn = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, question: Mapping[str, Any], *, seconds: float | None = None) -> dict[str, Any]:
        """The answer, a JSON document as the question. `seconds`: time for it, if that is less than
        the time of this worker.

        Kinds of questions:

        - `names`, of a `text` as in a spec: `text` without comments, and `names`, the columns in
          it, each with its `parts`, `start` and `end` in the text, and `names_a_field`: it is an
          argument of struct(), which names a field after it; and `variables`, the names of those
          of its lambda functions. It may call the function of InTimeZone.java only if `is_of_spec`
          is false.
        - `expression`, `sql` over `columns`, pairs of name and type: the fields of
          questions.Analysis; `type` in the JSON of Spark's data types, `column` if it is nothing
          else, `conjuncts`: answers for the terms of its ANDs, if it has several. With `time_zone`
          it is computed in that zone, else in UTC. It may call the function of InTimeZone.java,
          which a spec may not.
        - `filter`, `sql` over `columns`: nothing, if Spark runs it as the condition of a filter.
        - `time_zone`, of a `name`: `is_known`, and then `longest_set_back_ms`; and `time_zones`:
          the `names` of all.
        - `columns`, of a schema as `ddl`: its `type`, in the JSON of Spark's data types.
        - `functions`: all functions of Spark with `name`, `group`, the `examples` of its
          documentation, and `refused`: the reason why a spec may not call it, or null.
        - `open`, `run` and `drop`: see rows.py.

        Instead of these, `refused` with a reason of AllowedSql.java and `what`, or `error`,
        `condition` and `parameters` of Spark's error. CostError, or SetupError if the process
        cannot run.
        """
        within = self._seconds if seconds is None else min(seconds, self._seconds)
        with self._turn:
            was_running = self._process is not None
            try:
                return self._answer(question, within)
            except _EndedError:
                # Something ended it since the last question, and with it the rows of simulations.
                if was_running and question["kind"] != "run":
                    return self._answer(question, within)
                raise

    def _answer(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
            line = self._line(process.stdout, seconds)
        except TimeoutError:
            self._end()
            raise CostError(
                f"Spark needed more than {seconds:.0f} s: {_remedy(question)}"
            ) from None
        except OSError as error:
            line = b""
            cause: Exception | None = error
        else:
            cause = None
        if not (line.startswith(b"{") and line.endswith(b"\n")):
            failure = self._failure(process, line, question)
            self._end()
            raise failure from cause
        answer: dict[str, Any] = json.loads(line)
        return answer

    def start(self) -> None:
        """Start the process before the first question."""
        with self._turn:
            self._running()

    def close(self) -> None:
        with self._turn:
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            command = self._command()
            self._log = _unnamed_file()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=_environment(),
            )
        return self._process

    def _command(self) -> Sequence[str | Path]:
        class_path = class_path_of(self._jars)
        return [
            java(),
            *(f"-Xmx{self._heap_mb}m", "-XX:+ExitOnOutOfMemoryError"),
            # A command asks a few questions: the optimizing compiler would cost more than it saves.
            *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
            *("-Duser.language=en", "-Duser.country=US", "-Duser.timezone=UTC"),
            "-Dfile.encoding=UTF-8",
            # Spark logs nothing of interest here, and Log4j takes 0.1 s to start.
            "-Dslf4j.provider=org.slf4j.helpers.NOP_FallbackServiceProvider",
            "-Dslf4j.internal.verbosity=ERROR",
            *JAVA_OPTIONS,
            *("-cp", ":".join(class_path)),
            *class_archive_of(self._jars),
            _MAIN,
        ]

    def _line(self, output: IO[bytes], seconds: float) -> bytes:
        """A line with its end; a part of it at the end of the process. TimeoutError after `seconds`
        without output."""
        line = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(seconds):
                    raise TimeoutError
                part = os.read(output.fileno(), 1 << 16)
                if not part:
                    break
                line += part
        return bytes(line)

    def _failure(
        self, process: subprocess.Popen[bytes], line: bytes, question: Mapping[str, Any]
    ) -> SetupError:
        assert self._log is not None
        if b"OutOfMemoryError" in line:  # the JVM writes it to standard output
            needed = f"Spark needed more than {self._heap_mb} MB of memory"
            return CostError(f"{needed}: {_remedy(question)}")
        with suppress(subprocess.TimeoutExpired):  # it may have written something else
            process.wait(timeout=1)
        self._log.seek(0)
        output = self._log.read().decode(errors="replace").strip().splitlines()
        shown = f": {output[-1]}" if output else ""
        return _EndedError(
            f"the Java process that reads SQL ended with {process.returncode}{shown}"
        )


def _remedy(question: Mapping[str, Any]) -> str:
    return "use fewer or smaller records" if question["kind"] == "run" else "simplify it"


def _environment() -> dict[str, str]:
    """Without options for other JVMs. Spark looks for an address of the machine if it has none."""
    kept = {name: value for name, value in os.environ.items() if name not in _OF_OTHER_JVMS}
    return kept | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}


def _unnamed_file() -> IO[bytes]:
    """In memory if possible: a container may have no writable folder."""
    if sys.platform == "linux":
        return os.fdopen(os.memfd_create("sql-log"), "w+b")
    return tempfile.TemporaryFile()
