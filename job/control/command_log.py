"""The last commands: who sent them, when and why. Kept with the checkpoint."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Self

from job.checkpoint.commands import newest_commands, read_commands
from job.checkpoint.documents import Commands, Documents, write_document
from job.protocol.calls import Command
from job.protocol.reports import CommandReport


class CommandLog:
    """Belongs to the process: a query that continues after a change keeps the commands."""

    def __init__(self, earlier: Sequence[CommandReport] = ()) -> None:
        self._commands: tuple[CommandReport, ...] = tuple(earlier)
        self._stored: tuple[str, tuple[CommandReport, ...]] | None = None

    @classmethod
    def of(cls, location: str) -> Self:
        """With the commands next to this checkpoint if it is on this machine: the status has them
        while the JVM starts. Those of another file system are read with the first `store`."""
        from job.checkpoint.local import (  # PySpark: the JVM starts first
            LocalCheckpoint,
            local_path,
        )

        path = local_path(location)
        return cls() if path is None else cls(read_commands(LocalCheckpoint(path).folder))

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
