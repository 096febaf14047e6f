"""`streamjoin checkpoint …`."""

import sys
from dataclasses import replace
from typing import Annotated

import typer

from job.commands.spec_file import SpecFile, create_plan, read_spec, report_errors
from job.errors import RequestError
from job.settings import JobSettings, read_settings

checkpoint_commands = typer.Typer(
    help="Maintain the checkpoint of a stopped job.", no_args_is_help=True
)

Location = Annotated[str, typer.Argument(help="Folder on any file system that Hadoop reaches.")]


@checkpoint_commands.command("verify")
def verify_checkpoint(spec: SpecFile) -> None:
    """Read the whole checkpoint of a stopped job; exit 1 if it is incomplete or damaged."""
    from job.checkpoint import cli

    with report_errors(spec):
        lines, is_well = cli.verify(create_plan(read_spec(spec)), read_settings(JobSettings))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    raise typer.Exit(0 if is_well else 1)


@checkpoint_commands.command("backup")
def backup_checkpoint(spec: SpecFile, target: Location) -> None:
    """Copy the checkpoint of a stopped job to a new folder."""
    from job.checkpoint import cli

    with report_errors(spec):
        lines = cli.backup(create_plan(read_spec(spec)), read_settings(JobSettings), target)
    sys.stdout.writelines(f"{line}\n" for line in lines)


@checkpoint_commands.command("restore")
def restore_checkpoint(
    spec: SpecFile,
    source: Location,
    results_again: Annotated[
        bool,
        typer.Option(help="Accept an older copy: results after the copy are written again."),
    ] = False,
) -> None:
    """Replace the checkpoint by a backup; the replaced checkpoint is kept in another folder."""
    from job.checkpoint import cli

    with report_errors(spec):
        lines = cli.restore(
            create_plan(read_spec(spec)),
            read_settings(JobSettings),
            source,
            results_again=results_again,
        )
    sys.stdout.writelines(f"{line}\n" for line in lines)


@checkpoint_commands.command("repair")
def repair_checkpoint(spec: SpecFile) -> None:
    """Move files that a power failure left empty to a folder, if that is safe, and remove temporary
    files that killed jobs left. Each start does the same."""
    from job.checkpoint import cli

    with report_errors(spec):
        lines = cli.repair(create_plan(read_spec(spec)), read_settings(JobSettings))
    sys.stdout.writelines(f"{line}\n" for line in lines)


@checkpoint_commands.command("repartition")
def repartition_checkpoint(spec: SpecFile, target: Location) -> None:
    """Continue the join in a new folder with STREAMJOIN_STATE_PARTITIONS state partitions."""
    from job.change.cli import change

    with report_errors(spec):
        settings = read_settings(JobSettings)
        if settings.state_partitions is None:
            raise RequestError("STREAMJOIN_STATE_PARTITIONS is required: the new number")
        plan = create_plan(read_spec(spec), registry="required")
        changed = change(plan, replace(plan, checkpoint=target), settings, typer.echo)
    typer.echo(
        f"an earlier command has already prepared {target}"
        if changed is None
        else f"{changed.replay.state_partitions} state partitions in {target}"
    )
    typer.echo(
        f"end the old job, if its process still runs; set `checkpoint` in {spec} to this folder, "
        "then start with `streamjoin run`"
    )
