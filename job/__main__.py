"""The `streamjoin` command."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from job.errors import Problem, RegistryError, SecurityError, SpecError, StreamjoinError
from job.join_spec.spec import JoinSpec, spec_from_yaml, spec_json_schema
from job.join_spec.variables import variables_hidden
from job.plan.explain import explained, facts
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.plan.resources import means_of
from job.process import serve
from job.semantics.cli import simulation_lines, spec_test_lines
from job.semantics.spec_tests import SpecTest
from job.settings import JobSettings, settings_of

if TYPE_CHECKING:
    from job.formats.schemas import ReaderSchema
    from job.join_spec.expressions import Side

app = typer.Typer(
    help="Joins two Kafka topics as streams, and says what the join will do.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
care = typer.Typer(help="Care for a stopped job's checkpoint.", no_args_is_help=True)
app.add_typer(care, name="checkpoint")
dead = typer.Typer(
    help="What the join could not take: look, and put it back.", no_args_is_help=True
)
app.add_typer(dead, name="dead-letters")
topics = typer.Typer(help="Topics of a spec.", no_args_is_help=True)
app.add_typer(topics, name="topics")
SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="The join's YAML file.")]

Location = Annotated[str, typer.Argument(help="A folder, on any file system Hadoop reaches.")]

LetterSide = Annotated[
    Literal["left", "right", "output"] | None, typer.Option(help="Those of one side.")
]
LetterReason = Annotated[
    str | None, typer.Option(metavar="REASON", help="Those with one reason, e.g. malformed_json.")
]


@app.command()
def validate(spec: SpecFile) -> None:
    """Say everything that is wrong with a spec; exit 2 where anything is."""
    with errors_reported(spec):
        planned(read(spec), asks="may")
    typer.echo(f"{spec}: fine")


@app.command()
def plan(
    spec: SpecFile,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Explain what a join will do: no broker, no cluster; a schema registry, where it answers."""
    with errors_reported(spec):
        made = planned(read(spec), asks="may")
        means = means_of(settings_of(JobSettings), made, cores=os.cpu_count() or 1)
    told = json.dumps(facts(made, means), indent=2) if as_json else explained(made, means)
    typer.echo(told, nl=as_json)


@app.command()
def simulate(
    spec: SpecFile,
    left: Annotated[Path, typer.Option(help="JSON lines: one left value a line.")],
    right: Annotated[Path, typer.Option(help="JSON lines: one right value a line.")],
    batch_size: Annotated[
        int,
        typer.Option(
            min=1,
            help="Records of each side in a batch, without `batch` in them; of each partition its "
            "share of the rest.",
        ),
    ] = 1_000,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Batches by the records' timestamps instead: a record arrives in its batch.",
        ),
    ] = None,
    explain: Annotated[
        str | None, typer.Option(metavar="KEY", help="Tell the story of one key.")
    ] = None,
    output_format: Annotated[
        Literal["text", "jsonl"], typer.Option("--format", help="jsonl: the output values alone.")
    ] = "text",
) -> None:
    """Join two files and print the results, batch by batch: no Spark, no broker.

    A line is a record's value, or an envelope: {"value": …} with any of key, partition, offset,
    timestamp, batch. A line whose fields are columns of the side is a value. A line that may be
    either is refused; "envelope": true in it makes it an envelope.
    """
    with errors_reported(spec):
        lines = simulation_lines(
            planned(read(spec)),
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
    """Run the tests written in the spec; exit 1 where one fails."""
    with errors_reported(spec):
        document = read(spec)
        tests = [SpecTest(**written.model_dump()) for written in document.tests]
        if not tests:
            raise StreamjoinError("has no `tests:`")
        lines, passed = spec_test_lines(planned(document), tests)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    raise typer.Exit(0 if passed else 1)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a spec, for editors."""
    typer.echo(json.dumps(spec_json_schema(), indent=2))


@app.command()
def state(
    spec: SpecFile,
    key: Annotated[
        list[str] | None, typer.Option(help="A part of the key, in the spec's order; may repeat.")
    ] = None,
    side: Annotated[Literal["left", "right"], typer.Option(help="Whose rows.")] = "left",
) -> None:
    """Show what a stopped job's checkpoint holds: the rows of a key, or how many rows."""
    from job.checkpoint import cli

    with errors_reported(spec):
        lines = cli.state(planned(read(spec)), settings_of(JobSettings), side, key or [])
    sys.stdout.writelines(f"{line}\n" for line in lines)


@care.command("verify")
def verify_checkpoint(spec: SpecFile) -> None:
    """Read all of a stopped job's checkpoint and say whether it is whole; exit 1 where not."""
    from job.checkpoint import cli

    with errors_reported(spec):
        lines, is_well = cli.verify(planned(read(spec)), settings_of(JobSettings))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    raise typer.Exit(0 if is_well else 1)


@care.command("backup")
def backup_checkpoint(spec: SpecFile, target: Location) -> None:
    """Copy a stopped job's checkpoint to a new folder."""
    from job.checkpoint import cli

    with errors_reported(spec):
        lines = cli.backup(planned(read(spec)), settings_of(JobSettings), target)
    sys.stdout.writelines(f"{line}\n" for line in lines)


@care.command("restore")
def restore_checkpoint(
    spec: SpecFile,
    source: Location,
    results_again: Annotated[
        bool, typer.Option(help="Go on from an older copy: results that are out come again.")
    ] = False,
) -> None:
    """Put a backup in the checkpoint's place; what is there now is kept aside."""
    from job.checkpoint import cli

    with errors_reported(spec):
        lines = cli.restore(
            planned(read(spec)), settings_of(JobSettings), source, results_again=results_again
        )
    sys.stdout.writelines(f"{line}\n" for line in lines)


@care.command("repair")
def repair_checkpoint(spec: SpecFile) -> None:
    """Put aside what a power cut left half written, where that is safe; a start does so, too."""
    from job.checkpoint import cli

    with errors_reported(spec):
        lines = cli.repair(planned(read(spec)), settings_of(JobSettings))
    sys.stdout.writelines(f"{line}\n" for line in lines)


@care.command("repartition")
def repartition_checkpoint(spec: SpecFile) -> None:
    """Change the number of state partitions: refused, with the reason."""
    from job.checkpoint import cli

    with errors_reported(spec):
        cli.repartition()


@dead.command("list")
def list_dead_letters(
    spec: SpecFile,
    side: LetterSide = None,
    reason: LetterReason = None,
    limit: Annotated[int | None, typer.Option(min=1, help="No more than so many.")] = None,
) -> None:
    """List the dead letters that were not replayed, with their reasons."""
    from job.dead_letters import cli

    with errors_reported(spec):
        lines = cli.list_letters(planned(read(spec)), cli.Selection(side, reason), limit)
        sys.stdout.writelines(f"{line}\n" for line in lines)


@dead.command("replay")
def replay_dead_letters(
    spec: SpecFile,
    side: LetterSide = None,
    reason: LetterReason = None,
    dry_run: Annotated[bool, typer.Option(help="Only print what would be replayed.")] = False,
) -> None:
    """Write dead letters back to their original topics, each once, in one transaction."""
    from job.dead_letters import cli

    with errors_reported(spec):
        selection = cli.Selection(side, reason)
        lines = cli.replay_letters(planned(read(spec)), selection, dry_run=dry_run)
        sys.stdout.writelines(f"{line}\n" for line in lines)


@topics.command("create")
def create_topics(spec: SpecFile) -> None:
    """Create the topics of a spec that do not exist, with the broker's default partitions."""
    from job.kafka.topics import create_missing_topics

    with errors_reported(spec):
        created = create_missing_topics(planned(read(spec)))
    typer.echo(f"created: {', '.join(created) or 'none, all topics exist'}")


@app.command()
def run(
    spec: SpecFile,
    new_query: Annotated[
        bool,
        typer.Option(
            "--new-query",
            help="With a new checkpoint, replace the query that delivered under the same name "
            "before: results are delivered again, and its job stops.",
        ),
    ] = False,
) -> None:
    """Run the join until SIGTERM or Ctrl-C."""
    with errors_reported(spec):
        document = read(spec)
        settings = settings_of(JobSettings)
        if new_query:
            settings = settings.model_copy(update={"new_query": True})
        failed = serve(document, planned(document, asks="must"), settings)
    raise typer.Exit(1 if failed else 0)


def read(path: Path) -> JoinSpec:
    """The spec in `path`. Raises StreamjoinError if the file cannot be read."""
    return spec_from_yaml(_text(path), os.environ)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise StreamjoinError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        message = f"is not text in UTF-8 (byte {error.start}): save the file in UTF-8"
        raise SpecError([Problem("the file", None, message)]) from error


def planned(spec: JoinSpec, asks: Literal["must", "may", "if_needed"] = "if_needed") -> JoinPlan:
    """`asks`: whether the schema registry of a side must answer, may be silent where the side says
    its columns itself, or is then not even asked."""
    partitions = settings_of(JobSettings).partitions_of_new_state
    return join_plan(spec, state_partitions=partitions, readers=_pinned(spec, asks))


def _pinned(
    spec: JoinSpec, asks: Literal["must", "may", "if_needed"]
) -> "Mapping[Side, ReaderSchema]":
    if spec.schema_registry is None:
        return {}
    # No command on JSON is to wait for the packages of other formats.
    from job.formats.pinning import reader_schemas

    try:
        return reader_schemas(spec, only_missing=asks == "if_needed")
    except (RegistryError, SecurityError) as error:
        if asks != "may" or not (spec.left.says_columns and spec.right.says_columns):
            raise
        typer.echo(f"not held against the registry: {error}", err=True)
        return {}


@contextmanager
def errors_reported(spec: Path) -> Iterator[None]:
    """Prints a user's mistake without a stack trace, and exits with the error's code.

    Values of the environment that the spec's `${VAR}` were replaced with are not printed.
    """
    try:
        try:
            yield
        except SpecError:
            with variables_hidden(_text(spec), os.environ):
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
