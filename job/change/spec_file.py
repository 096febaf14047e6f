"""The spec file of the job, which a restart reads again."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from job.change.sent_spec import PlannedSpec, PlanRequest
from job.change.spec_process import SpecProcess
from job.errors import RequestError, SpecError, StreamjoinError
from job.plan.fingerprint import check_not_frozen, incompatible_changes
from job.protocol.calls import Command, ReadSpec, Restart
from job.protocol.results import SpecFileResult
from job.redaction import Redaction
from job.settings import JobSettings
from job.spec.spec import JoinSpec, spec_from_yaml
from job.spec.variables import variables_hidden, variables_of


class SpecFile:
    """Belongs to the process: the query that runs may be the successor of the one in the file."""

    def __init__(
        self,
        path: Path,
        read_text: Callable[[Path], str],
        running: PlannedSpec,
        settings: JobSettings,
        redaction: Redaction,
    ) -> None:
        """`read_text`: raises StreamjoinError if the file cannot be read. `running`: the spec in
        the file at the start of the job."""
        self.path = path
        self.running = running
        """The query that runs."""
        self._read_text = read_text
        self._accepted = running.written.spec
        self._settings = settings
        self._redaction = redaction
        self._planned: PlannedSpec | None = None
        self._taken: PlannedSpec | None = None

    def name_in(self, error: StreamjoinError) -> None:
        """Name the file in the commands of the message, if it has the running spec. After a change
        by a client it has the spec of an earlier query."""
        if self._accepted == self.running.written.spec:
            error.name_spec_file(self.path)

    def continue_with(self, successor: PlannedSpec) -> None:
        """Another query runs: after a change, or with the spec that a restart has taken."""
        self.running = successor
        if successor is self._taken:
            self._accepted = successor.written.spec

    def compare(
        self,
        frozen: Mapping[str, str] | None,
        specs: SpecProcess,
        request: ReadSpec,
        caller_gone: Event,
    ) -> SpecFileResult:
        """Read the file again, and plan it if it has changed. `frozen`: settings that the
        checkpoint freezes. None: not known.

        Raises SpecError if the file is invalid, FrozenSpecError if it changes `frozen` settings,
        RequestError if it has another `checkpoint`, and StreamjoinError as `SpecProcess.plan`.
        """
        self._planned = None
        running = self.running
        text = self._read_text(self.path)
        spec = _valid(text)
        if spec == running.written.spec:
            return SpecFileResult(message=f"{self.path} contains the running spec")
        if spec == self._accepted:
            return SpecFileResult(
                message=f"{self.path} contains the spec before the last change of the join: the "
                "running spec stays. Write the changed spec into the file"
            )
        plan_request = PlanRequest(
            *(text, running.written, variables_of(text, os.environ)),
            self._settings.partitions_of_new_state,
            is_file=True,
        )
        with self._secrets_hidden(text):
            sent = specs.plan(plan_request, caller_gone, within_seconds=request.within_seconds)
        if sent.plan.checkpoint != running.plan.checkpoint:
            raise RequestError(
                f"`checkpoint` in {self.path} is {sent.plan.checkpoint}, and the query runs on "
                f"{running.plan.checkpoint}: restore the value to restart the query; or change the "
                "join with `streamjoin change OLD_SPEC NEW_SPEC`; or end the job and start it with "
                "the file"
            )
        if frozen is not None:
            check_not_frozen(running.plan.checkpoint, incompatible_changes(sent.plan, frozen))
        self._planned = sent
        return SpecFileResult(message=f"{self.path} has changed: the query continues with it")

    def take_for(self, command: Command) -> PlannedSpec | None:
        """The changed spec that was read last, once. None: the command continues with the running
        spec, or is no restart."""
        if not isinstance(command, Restart) or not command.reads_spec:
            return None
        planned, self._planned = self._planned, None
        if planned is not None:
            self._taken = planned
        return planned

    @contextmanager
    def _secrets_hidden(self, text: str) -> Iterator[None]:
        try:
            with variables_hidden(text, os.environ):
                yield
        except Exception as error:
            self._redaction.scrub_error(error)
            raise


def _valid(text: str) -> JoinSpec | None:
    """None: the structure is invalid. The process for specs lists its problems with those of the
    SQL."""
    try:
        return spec_from_yaml(text, os.environ)
    except SpecError:
        return None
