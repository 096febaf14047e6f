"""The last commands of a query: next to its checkpoint, after a change next to the next one."""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

import structlog

from job.checkpoint.documents import Commands, Documents, read_document, write_document
from job.errors import CheckpointError
from job.protocol.reports import CommandReport

COMMANDS_MAX = 20

_log = structlog.get_logger()


def newest_commands(commands: Iterable[CommandReport]) -> tuple[CommandReport, ...]:
    """At most COMMANDS_MAX, oldest first."""
    return tuple(sorted(commands, key=lambda command: command.at)[-COMMANDS_MAX:])


def read_commands(folder: Documents) -> tuple[CommandReport, ...]:
    """Empty if the document cannot be read: it must not prevent a start."""
    try:
        document = read_document(folder, Commands)
    except (CheckpointError, OSError, ValueError) as error:
        _log.warning("commands_not_read", reason=str(error))
        return ()
    return () if document is None else tuple(document.commands)


def carry_commands(
    before: Documents, after: Documents, verb: Literal["change", "undo"], by: str, at: datetime
) -> None:
    """Write the commands of the query before a change next to the checkpoint that continues it,
    with the command of the change itself."""
    commands = {*read_commands(before), *read_commands(after)}
    made = CommandReport(verb=verb, by=by, at=at)
    write_document(after, Commands(commands=list(newest_commands({*commands, made}))))
