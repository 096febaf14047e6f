"""The last commands: who sent them, when and why. Kept with the checkpoint."""

from collections.abc import Iterable
from datetime import UTC, datetime

import structlog

from job.checkpoint.documents import Commands, Documents, read_document, write_document
from job.errors import CheckpointError
from job.protocol.calls import Command
from job.protocol.reports import CommandReport

COMMANDS_MAX = 20

_log = structlog.get_logger()


class CommandLog:
    """Belongs to the process: a query that continues after a change keeps the commands."""

    def __init__(self) -> None:
        self._commands: tuple[CommandReport, ...] = ()
        self._stored: tuple[str, tuple[CommandReport, ...]] | None = None

    @property
    def last(self) -> list[CommandReport]:
        """Oldest first."""
        return list(self._commands)

    def add(self, command: Command) -> None:
        """Called for each command that is accepted."""
        report = CommandReport(
            verb=command.call, by=command.by, at=datetime.now(UTC), reason=command.reason
        )
        self._commands = _newest([*self._commands, report])

    def store(self, folder: Documents) -> None:
        """Write the commands next to the checkpoint in `folder`. The first call for a folder reads
        the commands of earlier runs of the job."""
        stored = self._stored
        if stored is None or stored[0] != folder.root:
            earlier = _read(folder)
            self._commands = _newest({*earlier, *self._commands})
            stored = (folder.root, earlier)
        commands = self._commands
        if commands != stored[1]:
            write_document(folder, Commands(commands=list(commands)))
        self._stored = (folder.root, commands)


def _newest(commands: Iterable[CommandReport]) -> tuple[CommandReport, ...]:
    return tuple(sorted(commands, key=lambda command: command.at)[-COMMANDS_MAX:])


def _read(folder: Documents) -> tuple[CommandReport, ...]:
    """Empty if the document cannot be read: it must not prevent a start."""
    try:
        document = read_document(folder, Commands)
    except CheckpointError as error:
        _log.warning("commands_not_read", reason=str(error))
        return ()
    return () if document is None else tuple(document.commands)
