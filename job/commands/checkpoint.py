"""`streamjoin checkpoint …`."""

import sys
from dataclasses import replace
from typing import Annotated

import typer

from job.commands.output import AsJson, print_facts, warn_on_stderr
from job.commands.spec_file import SpecFile, create_plan, read_spec, report_errors
from job.commands.user import user_name
from job.errors import RequestError
from job.settings import JobSettings, read_settings

checkpoint_commands = typer.Typer(
    help="Maintain the checkpoint of a stopped job.",
    no_args_is_help=True,
    callback=warn_on_stderr,
)

Location = Annotated[str, typer.Argument(help="Folder on any file system that Hadoop reaches.")]


@checkpoint_commands.command("verify", epilog="Example: streamjoin checkpoint verify join.yaml")
def verify_checkpoint(spec: SpecFile, as_json: AsJson = False) -> None:
    """Read the whole checkpoint of a stopped job; exit 1 if it is incomplete or damaged."""
    from job.checkpoint import cli

    with report_errors(spec):
        checks = cli.verify(create_plan(read_spec(spec)), read_settings(JobSettings))
    print_facts(checks, map(str, checks), as_json=as_json)
    raise typer.Exit(0 if all(check.passed for check in checks) else 1)


@checkpoint_commands.command(
    "backup", epilog="Example: streamjoin checkpoint backup join.yaml s3a://backups/join"
)
def backup_checkpoint(spec: SpecFile, target: Location, as_json: AsJson = False) -> None:
    """Copy the checkpoint of a stopped job to a new folder."""
    from job.checkpoint import cli

    with report_errors(spec):
        made = cli.backup(create_plan(read_spec(spec)), read_settings(JobSettings), target)
    print_facts(made, cli.backup_lines(made), as_json=as_json)


@checkpoint_commands.command(
    "restore", epilog="Example: streamjoin checkpoint restore join.yaml s3a://backups/join"
)
def restore_checkpoint(
    spec: SpecFile,
    source: Location,
    results_again: Annotated[
        bool,
        typer.Option(help="Accept an older copy: results after the copy are written again."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Replace the checkpoint by a backup; the replaced checkpoint is kept in another folder."""
    from job.checkpoint import cli

    with report_errors(spec):
        plan = create_plan(read_spec(spec))
        restored = cli.restore(
            plan, read_settings(JobSettings), source, results_again=results_again
        )
    lines = cli.restore_lines(plan, restored, results_again=results_again)
    print_facts(restored, lines, as_json=as_json)


@checkpoint_commands.command("skip-gap", epilog="Example: streamjoin checkpoint skip-gap join.yaml")
def skip_gap(
    spec: SpecFile,
    yes: Annotated[bool, typer.Option("--yes", help="Skip without a prompt.")] = False,
    as_json: AsJson = False,
) -> None:
    """Continue without records that Kafka deleted before they were read, with the rows in state.

    Prints what is lost, then prompts. Without a terminal --yes is required; exit 1 if nothing is
    skipped although records are lost. The checkpoint records what was skipped.
    """
    from job.change.skip_gap import UnreadGaps
    from job.change.skip_gap import skip_gap as skip

    def confirm(unread: UnreadGaps) -> bool:
        for line in unread.lines:
            typer.echo(line, err=as_json)
        if yes or not (unread.gaps and sys.stdin.isatty()):
            return yes
        return typer.confirm("Skip these records?", err=True)

    with report_errors(spec):
        plan = create_plan(read_spec(spec))
        unread, is_skipped = skip(plan, read_settings(JobSettings), confirm)
    lines = [f"skipped: continue with `resume`, or `streamjoin run {spec}`"] * is_skipped
    print_facts({"skipped": is_skipped, **unread.as_json}, lines, as_json=as_json)
    if unread.gaps and not is_skipped:
        typer.echo("nothing was skipped: repeat the command with --yes", err=True)
        raise typer.Exit(1)


@checkpoint_commands.command("repair", epilog="Example: streamjoin checkpoint repair join.yaml")
def repair_checkpoint(spec: SpecFile, as_json: AsJson = False) -> None:
    """Move files that a power failure left empty to a folder, if that is safe, and remove temporary
    files that killed jobs left. Each start does the same."""
    from job.checkpoint import cli

    with report_errors(spec):
        repaired = cli.repair(create_plan(read_spec(spec)), read_settings(JobSettings))
    print_facts(repaired, repaired.lines, as_json=as_json)


@checkpoint_commands.command(
    "repartition", epilog="Example: streamjoin checkpoint repartition join.yaml /checkpoints/next"
)
def repartition_checkpoint(spec: SpecFile, target: Location) -> None:
    """Continue the join in a new folder with STREAMJOIN_STATE_PARTITIONS state partitions."""
    from job.change.cli import change
    from job.protocol.caller import job_to_end

    with report_errors(spec):
        settings = read_settings(JobSettings)
        if settings.state_partitions is None:
            raise RequestError("STREAMJOIN_STATE_PARTITIONS is required: the new number")
        plan = create_plan(read_spec(spec), registry="required")
        by = f"user:{user_name()}"
        changed = change(plan, replace(plan, checkpoint=target), settings, typer.echo, by)
    typer.echo(
        f"an earlier command has already prepared {target}"
        if changed is None
        else f"{changed.replay.state_partitions} state partitions in {target}"
    )
    typer.echo(
        f"{job_to_end(settings.socket, plan.name)}; set `checkpoint` in {spec} to this "
        "folder, then start with `streamjoin run`"
    )
