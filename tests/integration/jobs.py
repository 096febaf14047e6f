"""A real job process, started as a user starts it, and the answers of its control socket."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from job.installation.java import java_home
from job.protocol.status import Failure, JobStatus
from tests import processes
from tests.integration.forks import ForkedProcess, fork_server
from tests.integration.jvms import SharedJvm
from tests.polling import wait_until

# A start takes 6 s on two idle cores, several times that on shared ones.
STATE_PARTITIONS = 2
START_SECONDS = 120.0
STOP_SECONDS = 60.0
BATCH_SECONDS = 90.0

# A test's job lives for seconds: the optimizing compiler and the verification of classes cost more
# than they gain. Without verification a start took 14 % less CPU time, with a young generation of a
# fixed size 7 % less, with a heap of a fixed size another 7 %.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -Xms800m -Xmn300m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


class Job:
    """`with Job(spec, folder) as job:` runs `streamjoin run`; leaving it ends the process."""

    program: tuple[str, ...] | None = None
    """Beginning of its command lines. None: `python -m job`, as forks of a process with its
    imports."""

    def __init__(self, spec: str, folder: Path, jvm: SharedJvm | None = None) -> None:
        """`jvm`: shared with other jobs of the worker; None: the job starts its own."""
        self.spec_file = folder / "join.yaml"
        self.spec_file.write_text(spec)
        # The path of a socket may have 107 bytes, less than pytest's folders need.
        self._short = tempfile.TemporaryDirectory(prefix="sj-")
        self.socket = Path(self._short.name) / "control.sock"
        self.log = folder / "job.log"
        self._jvm = jvm
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._jvm is None:
            self.kill()
        else:
            self._leave(self._jvm, failed=error is not None)
        self._short.cleanup()
        if error is not None:
            sys.stderr.write(self.log.read_text(errors="replace")[-6000:])

    def _leave(self, jvm: SharedJvm, *, failed: bool) -> None:
        """End the job. If it is killed, discard the JVM: its query would continue there."""
        try:
            self.terminate()
        except subprocess.TimeoutExpired:
            self.kill()
            failed = True
        if failed:
            jvm.discard()

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the job, and of other commands on its spec."""
        return {
            **os.environ,
            "STREAMJOIN_SOCKET": str(self.socket),
            "STREAMJOIN_KEEP_RUNNING": "true",
            "STREAMJOIN_DRIVER_MEMORY": "1g",
            "STREAMJOIN_STATE_PARTITIONS": str(STATE_PARTITIONS),
            "JAVA_HOME": str(java_home()),
            "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
        }

    def _environment(self) -> dict[str, str]:
        """With the shared JVM, if there is one."""
        return self.environment if self._jvm is None else self._jvm.environment(self.environment)

    def start(self) -> None:
        arguments = ["run", str(self.spec_file)]
        environment = self._environment()
        if self.program is None:
            self._process = fork_server().start(
                arguments, environment, output=self.log, errors=self.log
            )
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.program, *arguments],
                env=environment,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    @property
    def process(self) -> "subprocess.Popen[bytes] | ForkedProcess":
        assert self._process is not None
        return self._process

    def terminate(self) -> int:
        """Send SIGTERM, as an orchestrator does; returns the exit code."""
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)

    def signal_group(self, number: signal.Signals) -> int:
        """Send a signal to the job's process group, as `timeout` and a terminal do; returns the
        exit code."""
        os.killpg(self.process.pid, number)
        return self.process.wait(STOP_SECONDS)

    def freeze(self) -> None:
        """Send SIGSTOP to the job and its descendants."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT to the job and its descendants, once all of them are stopped: at a failpoint
        the last process stops itself."""
        wait_until(
            lambda: all(processes.is_stopped(process) for process in self.tree),
            START_SECONDS,
            "all processes of the job are stopped",
        )
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        processes.signal_all(self.tree, number)

    @property
    def tree(self) -> list[psutil.Process]:
        """The driver and its JVM."""
        shared = self._jvm.tree if self._jvm is not None else []
        return [*processes.tree(self.process.pid), *shared]

    @property
    def jvm_pid(self) -> int:
        """Of a separate JVM."""
        (jvm,) = (process for process in self.tree if process.name() == "java")
        return jvm.pid

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_SECONDS)

    def wait_for_kill(self) -> None:
        """Wait until the driver has been killed at a failpoint. A separate JVM ends with it, and
        the shared one is ended here: the next start is in another JVM in both cases."""
        self.process.wait()
        if self._jvm is not None:
            self._jvm.discard()

    def kill_tree(self) -> int:
        """Send SIGKILL to the job and its descendants at once; returns the number of processes."""
        tree = self.tree
        processes.signal_all(tree, signal.SIGKILL)
        self.process.wait()
        psutil.wait_procs(tree, START_SECONDS)
        return len(tree)

    def command(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run `streamjoin` with these arguments in the environment of the job, and `variables`."""
        environment = {**self._environment(), **variables}
        if self.program is None:
            return fork_server().run([*arguments], environment, timeout=START_SECONDS)
        return subprocess.run(
            [*self.program, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
        )

    def command_in_background(self, *arguments: str) -> ForkedProcess:
        """As `command`. Returns at once."""
        return fork_server().start(
            [*arguments], self._environment(), output=self.log, errors=self.log
        )

    def ask(self, call: str, **arguments: Any) -> dict[str, Any]:
        """The answer to one call on the control socket."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(STOP_SECONDS)
            connection.connect(str(self.socket))
            request = json.dumps({"call": call, **arguments})
            connection.sendall(request.encode() + b"\n")
            answer: dict[str, Any] = json.loads(connection.makefile().readline())
            return answer

    def status(self) -> JobStatus | None:
        """The status. None: no job answers."""
        try:
            return JobStatus.model_validate(self.ask("status")["status"])
        except OSError:
            assert self.process.poll() is None, f"the job ended with {self.process.returncode}"
            return None

    def wait_for(
        self, condition: Callable[[JobStatus], Any], what: str, timeout: float = START_SECONDS
    ) -> JobStatus:
        """Wait for a status on which the condition is true. The query must not fail."""

        def reached() -> JobStatus | None:
            status = self.status()
            assert status is None or status.state != "FAILED", status.last_failure
            return status if status is not None and condition(status) else None

        return wait_until(reached, timeout, what)

    def wait_for_state(self, state: str, timeout: float = START_SECONDS) -> JobStatus:
        def reached() -> JobStatus | None:
            status = self.status()
            return status if status is not None and status.state == state else None

        return wait_until(reached, timeout, f"the job is {state}")

    def wait_for_failure(self, count: int) -> Failure:
        """Wait until the query has failed `count` times and is FAILED; returns the last failure."""

        def reached() -> Failure | None:
            status = self.status()
            if status is None or status.state != "FAILED":
                return None
            return status.last_failure if sum(status.totals.failures.values()) >= count else None

        return wait_until(reached, START_SECONDS, f"the query has failed {count} times")

    def wait_for_watermark(self, watermark_ms: int) -> JobStatus:
        """Wait until a batch has run with this watermark: it has emitted all rows that expire by
        then."""

        def reached() -> JobStatus | None:
            status = self.status()
            last = status.last_batch if status else None
            return status if last is not None and last.watermark_ms == watermark_ms else None

        return wait_until(reached, START_SECONDS, f"a batch has run with watermark {watermark_ms}")

    def wait_for_offsets(self, *, left: int, right: int) -> JobStatus:
        """Wait until this many records of each topic have been read by completed batches."""

        def have_been_read(status: JobStatus) -> bool:
            last = status.last_batch
            return last is not None and (left, right) == (
                sum(last.left.end_offsets.values()),
                sum(last.right.end_offsets.values()),
            )

        return self.wait_for(have_been_read, f"{left} + {right} records have been read")
