"""The `streamjoin` command.

A command imports what only that command needs in its own function: `validate` answers in half a
second, of which most is the import of pydantic and sqlglot.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from job.errors import Problem, RegistryError, SecurityError, SpecError, StreamjoinError
from job.join_spec.spec import JoinSpec, spec_from_yaml
from job.join_spec.variables import variables_hidden
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.settings import JobSettings, read_settings

if TYPE_CHECKING:
    from job.formats.schemas import ReaderSchema
    from job.join_spec.sides import Side

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
checkpoint_commands = typer.Typer(
    help="Maintain the checkpoint of a stopped job.", no_args_is_help=True
)
app.add_typer(checkpoint_commands, name="checkpoint")
dead_letter_commands = typer.Typer(help="List and replay dead letters.", no_args_is_help=True)
app.add_typer(dead_letter_commands, name="dead-letters")
topic_commands = typer.Typer(help="Create the topics of a spec.", no_args_is_help=True)
app.add_typer(topic_commands, name="topics")

SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="YAML file of the join.")]
Location = Annotated[str, typer.Argument(help="Folder on any file system that Hadoop reaches.")]
LetterSide = Annotated[
    Literal["left", "right", "output"] | None, typer.Option(help="Only dead letters of this side.")
]
LetterReason = Annotated[
    str | None,
    typer.Option(metavar="REASON", help="Only dead letters with this reason, e.g. malformed_json."),
]
RegistryUse = Literal["required", "preferred", "if_needed"]
"""`required`: a registry that does not answer ends the command. `preferred`: if it does not answer,
the columns in the spec are used. `if_needed`: only sides without columns in the spec are read."""


def _print_version(is_set: bool) -> None:
    if is_set:
        from importlib.metadata import version

        typer.echo(f"streamjoin {version('streamjoin')}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Join two Kafka topics as streams."""


@app.command()
def validate(spec: SpecFile) -> None:
    """Check a spec and list every problem; exit 2 if there is one."""
    with report_errors(spec):
        create_plan(read_spec(spec), registry="preferred")
    typer.echo(f"{spec} is valid")


@app.command()
def plan(
    spec: SpecFile,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain what a join will do. No broker, no cluster; a schema registry is optional."""
    from job.plan.explain import explained, facts
    from job.plan.resources import available_resources

    with report_errors(spec):
        made = create_plan(read_spec(spec), registry="preferred")
        settings = read_settings(JobSettings)
        resources = available_resources(settings, made, cores=os.cpu_count() or 1)
    text = json.dumps(facts(made, resources), indent=2) if as_json else explained(made, resources)
    typer.echo(text, nl=as_json)


@app.command()
def simulate(
    spec: SpecFile,
    left: Annotated[Path, typer.Option(help="JSON lines: one left value per line.")],
    right: Annotated[Path, typer.Option(help="JSON lines: one right value per line.")],
    batch_size: Annotated[
        int,
        typer.Option(
            min=1,
            help="Records per side and batch, of records without `batch`. Each partition gets a "
            "share in proportion to its unread records.",
        ),
    ] = 1_000,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Form batches of this length from the record timestamps, instead of by size.",
        ),
    ] = None,
    explain: Annotated[
        str | None, typer.Option(metavar="KEY", help="Trace the rows of one key.")
    ] = None,
    output_format: Annotated[
        Literal["text", "jsonl"], typer.Option("--format", help="jsonl: only the output values.")
    ] = "text",
) -> None:
    """Join two files and print the results of each batch. Needs no Spark and no broker.

    A line is a record's value, or an envelope: {"value": …} with any of key, partition, offset,
    timestamp, batch. A line whose fields are columns of the side is a value. A line that can be
    either is an error; "envelope": true in the line makes it an envelope.
    """
    from job.semantics.cli import simulation_lines

    with report_errors(spec):
        lines = simulation_lines(
            create_plan(read_spec(spec)),
            left,
            right,
            batch_size=batch_size,
            trigger=trigger,
            explain=explain,
            as_jsonl=output_format == "jsonl",
        )
        sys.stdout.writelines(f"{line}\n" for line in lines)


@app.command()
def test(spec: SpecFile) -> None:
    """Run the tests written in the spec; exit 1 if one fails."""
    from job.semantics.cli import spec_test_lines
    from job.semantics.spec_tests import SpecTest

    with report_errors(spec):
        document = read_spec(spec)
        tests = [SpecTest(**written.model_dump()) for written in document.tests]
        if not tests:
            raise StreamjoinError("has no `tests:`")
        lines, passed = spec_test_lines(create_plan(document), tests)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    raise typer.Exit(0 if passed else 1)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a spec, for editors."""
    from job.join_spec.reference import spec_json_schema

    typer.echo(json.dumps(spec_json_schema(), indent=2))


@app.command()
def state(
    spec: SpecFile,
    key: Annotated[
        list[str] | None,
        typer.Option(help="Value of one key column; repeat it in the order of the spec."),
    ] = None,
    side: Annotated[Literal["left", "right"], typer.Option(help="Side of the rows.")] = "left",
) -> None:
    """Show the state rows of a key in a stopped job's checkpoint; without a key, their number."""
    from job.checkpoint import cli

    with report_errors(spec):
        lines = cli.state(create_plan(read_spec(spec)), read_settings(JobSettings), side, key or [])
    sys.stdout.writelines(f"{line}\n" for line in lines)


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
    """Remove incomplete files of a power failure, if that is safe. Each start does the same."""
    from job.checkpoint import cli

    with report_errors(spec):
        lines = cli.repair(create_plan(read_spec(spec)), read_settings(JobSettings))
    sys.stdout.writelines(f"{line}\n" for line in lines)


@checkpoint_commands.command("repartition")
def repartition_checkpoint(spec: SpecFile) -> None:
    """Change the number of state partitions: not supported; prints the reason."""
    from job.checkpoint import cli

    with report_errors(spec):
        cli.repartition()


@dead_letter_commands.command("list")
def list_dead_letters(
    spec: SpecFile,
    side: LetterSide = None,
    reason: LetterReason = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number to list.")] = None,
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


@topic_commands.command("create")
def create_topics(spec: SpecFile) -> None:
    """Create the missing topics of a spec, with the broker's default number of partitions."""
    from job.kafka.topics import create_missing_topics

    with report_errors(spec):
        created = create_missing_topics(create_plan(read_spec(spec)))
    typer.echo(f"created: {', '.join(created) or 'none, all topics exist'}")


@app.command()
def run(
    spec: SpecFile,
    new_query: Annotated[
        bool,
        typer.Option(
            "--new-query",
            help="Let a new checkpoint replace the query that delivered under the same name: "
            "its job is fenced, and results are written again.",
        ),
    ] = False,
) -> None:
    """Run the join until SIGTERM or Ctrl-C."""
    from job.process import serve

    with report_errors(spec):
        document = read_spec(spec)
        settings = read_settings(JobSettings)
        if new_query:
            settings = settings.model_copy(update={"new_query": True})
        failed = serve(document, create_plan(document, registry="required"), settings)
    raise typer.Exit(1 if failed else 0)


def read_spec(path: Path) -> JoinSpec:
    """Raises StreamjoinError if the file cannot be read, SpecError if the spec is invalid."""
    return spec_from_yaml(_read_text(path), os.environ)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise StreamjoinError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        message = f"is not text in UTF-8 (byte {error.start}): save the file in UTF-8"
        raise SpecError([Problem("the file", None, message)]) from error


def create_plan(spec: JoinSpec, registry: RegistryUse = "if_needed") -> JoinPlan:
    """The plan of `spec` with the settings of this machine and the schemas of its registry."""
    partitions = read_settings(JobSettings).partitions_of_new_state
    return join_plan(spec, state_partitions=partitions, readers=_read_schemas(spec, registry))


def _read_schemas(spec: JoinSpec, registry: RegistryUse) -> "Mapping[Side, ReaderSchema]":
    if spec.schema_registry is None:
        return {}
    # Commands on JSON load no packages of other formats.
    from job.formats.pinning import reader_schemas

    try:
        return reader_schemas(spec, only_missing=registry == "if_needed")
    except (RegistryError, SecurityError) as error:
        if registry != "preferred" or not (spec.left.has_columns and spec.right.has_columns):
            raise
        typer.echo(f"not compared with the schema registry: {error}", err=True)
        return {}


@contextmanager
def report_errors(spec: Path) -> Iterator[None]:
    """Prints a StreamjoinError without a stack trace and exits with its code.

    Where a `${VAR}` of the spec was replaced, the message shows the variable, not its value.
    """
    try:
        try:
            yield
        except SpecError:
            with variables_hidden(_read_text(spec), os.environ):
                raise
    except SpecError as error:
        count = len(error.problems)
        typer.echo(f"{spec}: {count} problem{'s' if count > 1 else ''}", err=True)
        for problem in error.problems:
            typer.echo(f"  {problem}", err=True)
        raise typer.Exit(error.exit_code) from None
    except StreamjoinError as error:
        typer.echo(f"{spec}: {error}", err=True)
        raise typer.Exit(error.exit_code) from None


def main() -> None:
    app()


if __name__ == "__main__":
    main()
