"""The `streamjoin` command.

A command imports what only that command needs in its own function.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from job.commands.change import change
from job.commands.checkpoint import checkpoint_commands
from job.commands.compare import compare
from job.commands.dead_letters import dead_letter_commands
from job.commands.init import init
from job.commands.program import run_program
from job.commands.spec_file import (
    RECORDS_MAX,
    SIMULATION_HEAP_MB,
    SpecFile,
    check_spec,
    create_plan,
    plan_with,
    read_spec,
    read_written_spec,
    report_errors,
    sql_worker,
)
from job.errors import SetupError, StreamjoinError
from job.settings import JobSettings, read_settings
from job.sql.questions import SqlQuestions
from job.sql.rows import SqlRows

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(init)
app.command()(change)
app.command()(compare)
app.add_typer(checkpoint_commands, name="checkpoint")
app.add_typer(dead_letter_commands, name="dead-letters")
topic_commands = typer.Typer(help="Create the topics of a spec.", no_args_is_help=True)
app.add_typer(topic_commands, name="topics")


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
def validate(
    spec: SpecFile,
    structure: Annotated[
        bool,
        typer.Option("--structure", help="Check all but the SQL. Needs no Java and no PySpark."),
    ] = False,
) -> None:
    """Check a spec and list every problem; exit 2 if there is one."""
    with report_errors(spec):
        if structure:
            read_spec(spec)
            typer.echo(f"the structure of {spec} is valid; its SQL was not checked")
            return
        with _structure_offered():
            check_spec(spec)
    typer.echo(f"{spec} is valid")


@contextmanager
def _structure_offered() -> Iterator[None]:
    """If Java, PySpark or a jar is missing, prints what does not need them."""
    try:
        yield
    except (SetupError, ModuleNotFoundError):
        typer.echo("`streamjoin validate --structure` checks everything but the SQL.", err=True)
        raise


@app.command()
def plan(
    spec: SpecFile,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain what a join will do. No broker, no cluster; a schema registry is optional."""
    from job.plan.explain import explained, plan_as_json
    from job.plan.resources import available_resources

    with report_errors(spec):
        made = create_plan(read_spec(spec), registry="preferred")
        settings = read_settings(JobSettings)
        resources = available_resources(settings, made, cores=os.cpu_count() or 1)
    text = (
        json.dumps(plan_as_json(made, resources), indent=2)
        if as_json
        else explained(made, resources)
    )
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
            max=RECORDS_MAX,
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
    """Join two files and print the results of each batch. Needs no broker and no Spark session.

    A line is a record's value, or an envelope: {"value": …} with any of key, partition, offset,
    timestamp, batch. A line whose fields are columns of the side is a value. A line that can be
    either is an error; "envelope": true in the line makes it an envelope.
    """
    from job.semantics.cli import simulation_lines

    with report_errors(spec), sql_worker(heap_mb=SIMULATION_HEAP_MB) as worker:
        lines = simulation_lines(
            plan_with(read_spec(spec), SqlQuestions(worker.ask)),
            SqlRows(worker.ask),
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
        with sql_worker() as worker:
            plan = plan_with(document, SqlQuestions(worker.ask))
            lines, passed = spec_test_lines(plan, SqlRows(worker.ask), tests)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    raise typer.Exit(0 if passed else 1)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a spec, for editors."""
    from job.spec.reference import spec_json_schema

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


@topic_commands.command("create")
def create_topics(
    spec: SpecFile,
    inputs: Annotated[
        bool, typer.Option("--inputs", help="Also create the missing inputs.")
    ] = False,
) -> None:
    """Create the missing topics that the join writes: output and dead letters. A missing input is
    an error. New topics have the broker's default number of partitions."""
    from job.kafka.topics import create_missing_topics

    with report_errors(spec):
        created = create_missing_topics(create_plan(read_spec(spec)), with_inputs=inputs)
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
        settings = read_settings(JobSettings)
    with report_errors(spec, settings.log_format):
        written = read_written_spec(spec)
        if new_query:
            settings = settings.model_copy(update={"new_query": True})
        with_sql, alone = (partial(each, registry="required") for each in (plan_with, create_plan))
        failed = serve(written, with_sql, alone, settings)
    raise typer.Exit(1 if failed else 0)


def main() -> None:
    run_program(app)


if __name__ == "__main__":
    main()
