"""`streamjoin dead-letters …`."""

import sys
from typing import Annotated, Literal

import typer

from job.commands.output import warn_on_stderr
from job.commands.spec_file import (
    RECORDS_MAX,
    SpecFile,
    create_plan,
    plan_with,
    read_spec,
    report_errors,
    sql_worker,
)
from job.sql.questions import SqlQuestions
from job.sql.rows import SqlRows

dead_letter_commands = typer.Typer(
    help="List and replay dead letters.", no_args_is_help=True, callback=warn_on_stderr
)

LetterSide = Annotated[
    Literal["left", "right", "output"] | None, typer.Option(help="Only dead letters of this side.")
]
LetterReason = Annotated[
    str | None,
    typer.Option(metavar="REASON", help="Only dead letters with this reason, e.g. malformed_json."),
]
LetterKey = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only dead letters with this record key.")
]


@dead_letter_commands.command(
    "list", epilog="Example: streamjoin dead-letters list join.yaml --reason late"
)
def list_dead_letters(
    spec: SpecFile,
    side: LetterSide = None,
    reason: LetterReason = None,
    key: LetterKey = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=RECORDS_MAX, help="Maximum number to list.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """List the dead letters that were not replayed: reason, record key, begin of the value."""
    from job.dead_letters import cli

    with report_errors(spec):
        selection = cli.Selection(side, reason, key)
        lines = cli.list_letters(create_plan(read_spec(spec)), selection, limit, as_json=as_json)
        sys.stdout.writelines(f"{line}\n" for line in lines)


@dead_letter_commands.command(
    "replay", epilog="Example: streamjoin dead-letters replay join.yaml --dry-run"
)
def replay_dead_letters(
    spec: SpecFile,
    side: LetterSide = None,
    reason: LetterReason = None,
    key: LetterKey = None,
    unchecked: Annotated[
        bool, typer.Option("--all", help="Replay also what fails again: evaluate no record.")
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Only list what would be replayed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not prompt on a terminal.")] = False,
) -> None:
    """Write dead letters back to their source topics, each once, in one transaction.

    The spec is evaluated on the records first: those that would fail again are left out.
    """
    from job.check.replayed import ReplayCheck
    from job.dead_letters import cli

    def confirm(question: str) -> bool:
        return yes or not sys.stdin.isatty() or typer.confirm(question)

    with report_errors(spec), sql_worker() as worker:
        made = plan_with(read_spec(spec), SqlQuestions(worker.ask), registry="required")
        lines = cli.replay_letters(
            made,
            cli.Selection(side, reason, key),
            ReplayCheck(made, SqlRows(worker.ask)).failures,
            unchecked=unchecked,
            dry_run=dry_run,
            confirm=confirm,
        )
        for line in lines:
            typer.echo(line)
