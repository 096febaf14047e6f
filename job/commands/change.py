"""`streamjoin change`."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from job.commands.output import print_facts, warn_on_stderr
from job.commands.spec_file import create_plans, report_errors
from job.commands.user import user_name
from job.errors import RequestError
from job.instants import utc_text
from job.settings import JobSettings, read_settings

if TYPE_CHECKING:
    from job.replay.replay import Replay


def change(
    old_spec: Annotated[
        Path, typer.Argument(metavar="OLD_SPEC", help="YAML file of the running join.")
    ],
    new_spec: Annotated[
        Path,
        typer.Argument(metavar="NEW_SPEC", help="The changed file, with another `checkpoint`."),
    ],
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Print the plan of the change and do not make it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --plan: print JSON.")] = False,
    shadow: Annotated[
        bool,
        typer.Option(
            help="Leave the old query running. The new spec has another `name` and output topic."
        ),
    ] = False,
    undo: Annotated[
        bool,
        typer.Option(help="Return to the old query, if the new one has delivered nothing."),
    ] = False,
) -> None:
    """Change a join without losing or repeating a result.

    Stops the old query and prepares the checkpoint of the new one. Then `streamjoin run NEW_SPEC`
    reads the records that its state needs again, and continues. With --shadow the old query does
    not stop: `streamjoin compare` reports how the results of both differ.
    """
    with report_errors(old_spec):
        if (as_json and not only_plan) or (undo and (only_plan or shadow)):
            raise RequestError(
                "invalid options: --json requires --plan, and --undo excludes --plan and --shadow"
            )
    warn_on_stderr()
    old, new = create_plans([old_spec, new_spec], registry="required")
    with report_errors(new_spec):
        settings, by = read_settings(JobSettings), f"user:{user_name()}"
        # Spark is imported only here.
        from job.change import cli
        from job.change.plan import described
        from job.protocol.caller import job_to_end

        if undo:
            cli.undo(old, new, settings, by)
            typer.echo("undone: the new query does not run any more")
            typer.echo(job_to_end(settings.socket, old.name))
            typer.echo(f"start the old query with `streamjoin run {old_spec}`")
            return
        if only_plan:
            plan = cli.plan(old, new, settings, is_shadow=shadow)
            shown = described(plan, cores=os.cpu_count() or 1)
            print_facts(shown.facts, [shown.text], as_json=as_json)
            return
        made = (
            cli.shadow(old, new, settings)
            if shadow
            else cli.change(old, new, settings, typer.echo, by)
        )
    for line in _lines(None if made is None else made.replay):
        typer.echo(line)
    if not shadow:
        typer.echo(job_to_end(settings.socket, old.name))
    typer.echo(f"start the new query with `streamjoin run {new_spec}`")
    if shadow:
        # Results of records before the cut are only in the output of the old query.
        now = utc_text(datetime.now(UTC))
        typer.echo(f"then `streamjoin compare {old_spec} {new_spec} --since {now}`")


def _lines(replay: "Replay | None") -> Iterator[str]:
    """What was done. `replay` None: the change is already complete."""
    if replay is None:
        yield "the change is already complete"
        return
    stops = "continues" if replay.is_shadow else "has stopped"
    yield (
        f"the old query {stops} after batch {replay.old_batch_id}; the new one reads "
        f"{replay.records:,} records again"
    )
    if possibly_late := replay.possibly_late_records:
        yield (
            f"{possibly_late:,} of them may have been late in the old query: the new query stores "
            "them, and they can match later records"
        )
