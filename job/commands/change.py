"""`streamjoin change`."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from job.commands.spec_file import create_plan, read_spec, report_errors
from job.errors import RequestError
from job.settings import JobSettings, read_settings


def change(
    old_spec: Annotated[
        Path, typer.Argument(metavar="OLD_SPEC", help="YAML file of the running join.")
    ],
    new_spec: Annotated[
        Path,
        typer.Argument(metavar="NEW_SPEC", help="The changed file, with another `checkpoint`."),
    ],
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Explain the change and do not make it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --plan: print JSON.")] = False,
    undo: Annotated[
        bool,
        typer.Option(help="Return to the old query, while the new one has delivered nothing."),
    ] = False,
) -> None:
    """Change a join without losing or repeating a result.

    Stops the old query and prepares the checkpoint of the new one, which reads again from Kafka
    what it needs. Then `streamjoin run NEW_SPEC` continues.
    """
    with report_errors(old_spec):
        old = create_plan(read_spec(old_spec), registry="required")
        settings = read_settings(JobSettings)
        if (as_json and not only_plan) or (only_plan and undo):
            raise RequestError("invalid options: --json needs --plan, and --undo excludes --plan")
    with report_errors(new_spec):
        new = create_plan(read_spec(new_spec), registry="required")
        # Spark is imported only here.
        from job.change.explain import explained, facts
        from job.query import changing

        if undo:
            changing.undo(old, new, settings)
            typer.echo(f"undone: start the old query with `streamjoin run {old_spec}`")
            return
        cores = os.cpu_count() or 1
        if only_plan:
            made = changing.plan_change(old, new, settings)
            found = facts(
                *(new, made.comparison, made.replay, made.needed_ms),
                cores=cores,
                late_rows=made.late_rows,
            )
            typer.echo(
                json.dumps(found, indent=2)
                if as_json
                else explained(new, made.comparison, made.replay, found)
            )
            return
        changed = changing.change(old, new, settings)
    if changed is None:
        typer.echo("the change was made before")
    else:
        typer.echo(
            f"the old query has stopped after batch {changed.replay.old_batch_id}; the new one "
            f"reads {changed.replay.records:,} records again"
        )
        if possibly_late := changed.replay.possibly_late_records:
            typer.echo(
                f"whether {possibly_late:,} of them were late is unknown: see docs/changing.md"
            )
    typer.echo(f"start the new query with `streamjoin run {new_spec}`")
