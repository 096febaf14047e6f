"""A process that answers questions about SQL with Spark's own parser, analyzer and optimizer.

SqlWorker.java has no Spark session and computes nothing but constants. It refuses what a spec may
not use before Spark sees it (AllowedSql.java). The process has a limit of memory, and each question
a deadline: a hostile expression costs the process, never the caller.
"""

import json
import os
import selectors
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from job.errors import SetupError
from job.java_jar import JARS_REMEDY, JAVA_JAR
from job.jvm_command import JAVA_OPTIONS, java, spark_jars

_MAIN = "streamjoin.SqlWorker"
_HEAP_MB = 256
_STACK_MB = 16
"""Spark's parser and analyzer are recursive."""
_SECONDS = 30.0


class WorkerError(SetupError):
    """The worker gave no answer: it needed too long, or too much memory. Its process has ended."""


class SqlWorker:
    """Started by the first question, and again by the first one after its end."""

    def __init__(self, jars: Path, *, seconds: float = _SECONDS) -> None:
        """`jars`: the folder with the jars of the job. `seconds`: time for an answer."""
        self._jars = jars
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer, a JSON document as the question.

        Kinds of questions:

        - `names`, of a `text` as in a spec: `text` without comments, and `names`, the columns in
          it, each with its `parts`, `start` and `end` in the text, and `names_a_field`: it is an
          argument of struct(), which names a field after it.
        - `expression`, `sql` over `columns` (DDL): `type` (JSON of Spark's data types), `nullable`,
          `columns`, `column` if it is nothing else, `can_fail`: whether it can fail on a row,
          `foldable`: it is a constant, with its `value` as text; `conjuncts`: answers for the terms
          of its ANDs, if it has several. With `filter` it is computed as the condition of a filter.
        - `same`, two texts `sql` over `columns`: `same`, whether they have the same meaning.
        - `columns`, of a schema as `ddl`: `columns` with `name`, `type`, `ddl` and `nullable`.
        - `functions`: all functions of Spark with `name`, `group`, the `examples` of its
          documentation, and `refused`: the reason why a spec may not call it, or null.

        Instead of these, `refused` with a reason of AllowedSql.java and `what`, or `error`,
        `condition` and `parameters` of Spark's error. WorkerError: there is no answer.
        """
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
            line = self._line(process.stdout)
        except OSError as error:
            line = b""
            cause: Exception | None = error
        else:
            cause = None
        if not (line.startswith(b"{") and line.endswith(b"\n")):
            message = f"Spark's analyzer has not answered: {self._reason(process, line)}"
            self.close()
            raise WorkerError(message) from cause
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115  # `close` closes it
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
            )
        return self._process

    def _command(self) -> Sequence[str | Path]:
        jar = self._jars / JAVA_JAR
        if not jar.exists():
            raise SetupError(f"{jar} does not exist. {JARS_REMEDY}")
        return [
            java(),
            *(f"-Xmx{_HEAP_MB}m", f"-Xss{_STACK_MB}m", "-XX:+ExitOnOutOfMemoryError"),
            # A command asks a few questions: the optimizing compiler would cost more than it saves.
            *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-Duser.language=en", "-Duser.country=US", "-Duser.timezone=UTC"),
            *("-Dfile.encoding=UTF-8", f"-Dlog4j2.configurationFile={os.devnull}"),
            *JAVA_OPTIONS,
            *("-cp", f"{jar}:{spark_jars()}/*", _MAIN),
        ]

    def _line(self, output: IO[bytes]) -> bytes:
        """A line with its end; a part of it at the deadline or at the end of the process."""
        line = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while not line.endswith(b"\n") and selector.select(self._seconds):
                part = os.read(output.fileno(), 1 << 16)
                if not part:
                    break
                line += part
        return bytes(line)

    def _reason(self, process: subprocess.Popen[bytes], line: bytes) -> str:
        assert self._log is not None
        if b"OutOfMemoryError" in line:  # the JVM writes it to standard output
            return f"it has needed more than {_HEAP_MB} MB of memory. Simplify the expression"
        try:
            process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return f"it has needed more than {self._seconds:.0f} s. Simplify the expression"
        self._log.seek(0)
        output = self._log.read().decode(errors="replace").strip().splitlines()
        shown = f": {output[-1]}" if output else ""
        return f"its process has ended with {process.returncode}{shown}"
