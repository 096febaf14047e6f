"""The last commands: who sent them, when and why. Kept with the checkpoint."""

from datetime import UTC, datetime

from job.checkpoint.commands import newest_commands, read_commands
from job.checkpoint.documents import Commands, Documents, write_document
from job.protocol.calls import Command
from job.protocol.reports import CommandReport


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
        self._commands = newest_commands([*self._commands, report])

    def store(self, folder: Documents) -> None:
        """Write the commands next to the checkpoint in `folder`. The first call for a folder reads
        the commands of earlier runs of the job."""
        stored = self._stored
        if stored is None or stored[0] != folder.root:
            earlier = read_commands(folder)
            self._commands = newest_commands({*earlier, *self._commands})
            stored = (folder.root, earlier)
        commands = self._commands
        if commands != stored[1]:
            write_document(folder, Commands(commands=list(commands)))
        self._stored = (folder.root, commands)
