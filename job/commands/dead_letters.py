"""`streamjoin dead-letters …`."""

import sys
from typing import Annotated, Literal

import typer

from job.commands.spec_file import RECORDS_MAX, SpecFile, create_plan, read_spec, report_errors

dead_letter_commands = typer.Typer(help="List and replay dead letters.", no_args_is_help=True)

LetterSide = Annotated[
    Literal["left", "right", "output"] | None, typer.Option(help="Only dead letters of this side.")
]
LetterReason = Annotated[
    str | None,
    typer.Option(metavar="REASON", help="Only dead letters with this reason, e.g. malformed_json."),
]


@dead_letter_commands.command("list")
def list_dead_letters(
    spec: SpecFile,
    side: LetterSide = None,
    reason: LetterReason = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=RECORDS_MAX, help="Maximum number to list.")
    ] = None,
) -> None:
    """List the dead letters that were not replayed, with their reasons."""
    from job.dead_letters import cli

    with report_errors(spec):
        lines = cli.list_letters(create_plan(read_spec(spec)), cli.Selection(side, reason), limit)
        sys.stdout.writelines(f"{line}\n" for line in lines)


@dead_letter_commands.command("replay")
def replay_dead_letters(
    spec: SpecFile,
    side: LetterSide = None,
    reason: LetterReason = None,
    dry_run: Annotated[bool, typer.Option(help="Only list what would be replayed.")] = False,
) -> None:
    """Write dead letters back to their source topics, each once, in one transaction."""
    from job.dead_letters import cli

    with report_errors(spec):
        made = create_plan(read_spec(spec))
        lines = cli.replay_letters(made, cli.Selection(side, reason), dry_run=dry_run)
        sys.stdout.writelines(f"{line}\n" for line in lines)
