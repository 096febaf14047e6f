"""The `streamjoin` command.

A command imports what only that command needs in its own function.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import typer

from job.commands.change import change
from job.commands.check import check
from job.commands.checkpoint import checkpoint_commands
from job.commands.compare import compare
from job.commands.dead_letters import dead_letter_commands
from job.commands.explain import explain
from job.commands.init import init
from job.commands.output import AsJson, print_facts
from job.commands.program import run_program
from job.commands.reset import reset
from job.commands.running import RUNNING_PANEL, add_running_commands
from job.commands.setup import setup
from job.commands.spec_file import (
    RECORDS_MAX,
    SIMULATION_HEAP_MB,
    SpecFile,
    check_spec,
    create_plan,
    plan_with,
    read_spec,
    read_structure,
    read_text,
    read_written_spec,
    report_errors,
    sql_worker,
)
from job.commands.state import state
from job.commands.topics import topic_commands
from job.commands.verify import output_commands
from job.commands.watch import watch
from job.errors import Problem, SetupError, StreamjoinError
from job.settings import JobSettings, read_settings
from job.sql.questions import SqlQuestions
from job.sql.rows import SqlRows

WRITE, RUN, MAINTAIN = "Write a spec", "Run a join", "Maintain a join"

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done; 1 not possible; 2 the spec, an option or an argument is invalid.",
)
app.command(rich_help_panel=WRITE, epilog="Example: streamjoin setup")(setup)
app.command(
    rich_help_panel=WRITE,
    epilog="Example: streamjoin init join.yaml --bootstrap-server localhost:9092",
)(init)
app.add_typer(topic_commands, name="topics", rich_help_panel=RUN)
app.command(rich_help_panel=RUN, epilog="Example: streamjoin check join.yaml")(check)
app.command(rich_help_panel=RUN, epilog="Example: streamjoin explain join.yaml --key 42")(explain)


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


@app.command(rich_help_panel=WRITE, epilog="Example: streamjoin validate join.yaml")
def validate(
    spec: SpecFile,
    structure: Annotated[
        bool,
        typer.Option("--structure", help="Check all but the SQL. Needs no Java and no PySpark."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a spec and list every problem; exit 2 if there is one."""
    warnings: list[str] = []

    def print_result(problems: Sequence[Problem], *lines: str) -> None:
        facts = {"valid": not problems, "sql_checked": not structure}
        lists = {"problems": problems, "warnings": warnings}
        print_facts(facts | lists, lines, as_json=as_json)

    with report_errors(spec, on_problems=print_result):
        if structure:
            read_structure(spec)
        else:
            with _structure_offered():
                warnings = check_spec(spec)
    for warning in () if as_json else warnings:
        typer.echo(f"warning: {warning}", err=True)
    unchecked = f"the structure of {spec} is valid; its SQL was not checked"
    print_result([], unchecked if structure else f"{spec} is valid")


@contextmanager
def _structure_offered() -> Iterator[None]:
    """If Java, PySpark or a jar is missing, prints what does not need them."""
    try:
        yield
    except (SetupError, ModuleNotFoundError):
        typer.echo("`streamjoin validate --structure` checks everything but the SQL.", err=True)
        raise


@app.command(rich_help_panel=WRITE, epilog="Example: streamjoin plan join.yaml")
def plan(
    spec: SpecFile,
    full: Annotated[bool, typer.Option("--full", help="Print all details.")] = False,
    as_json: AsJson = False,
) -> None:
    """Explain what a join will do. No broker, no cluster; a schema registry is optional."""
    from job.plan.explain import explained, plan_as_json, summarized
    from job.plan.resources import available_resources

    with report_errors(spec):
        made = create_plan(read_spec(spec), registry="preferred")
        settings = read_settings(JobSettings)
        resources = available_resources(settings, made, cores=os.cpu_count() or 1)
    text = (explained if full else summarized)(made, resources)
    print_facts(plan_as_json(made, resources), [text.rstrip("\n")], as_json=as_json)


@app.command(
    rich_help_panel=WRITE,
    epilog="Example: streamjoin simulate join.yaml --left left.jsonl --right right.jsonl",
)
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
        str | None,
        typer.Option(metavar="KEY", help="Only what happened to each record of one key, and why."),
    ] = None,
    output_format: Annotated[
        Literal["text", "jsonl"], typer.Option("--format", help="jsonl: only the output values.")
    ] = "text",
) -> None:
    """Join two files and print the results of each batch. Needs no broker and no Spark session.

    A line is a record's value, or a whole record: {"value": …} with any of key, headers, topic,
    partition, offset, timestamp, batch. A line whose fields are columns of the side is a value. A
    line that can be either is an error; "record": true in the line makes it a whole record.
    """
    from job.explain.simulated import explained_simulation
    from job.semantics.cli import simulation_lines

    with report_errors(spec), sql_worker(heap_mb=SIMULATION_HEAP_MB) as worker:
        made = plan_with(read_spec(spec), SqlQuestions(worker.ask))
        inputs = (made, SqlRows(worker.ask), left, right)
        lines: Iterable[str]
        if explain is None:
            lines = simulation_lines(
                *inputs,
                batch_size=batch_size,
                trigger=trigger,
                as_jsonl=output_format == "jsonl",
            )
        else:
            lines = explained_simulation(*inputs, explain, batch_size=batch_size, trigger=trigger)
        sys.stdout.writelines(f"{line}\n" for line in lines)


@app.command("test", rich_help_panel=WRITE, epilog="Example: streamjoin test join.yaml")
def run_tests(spec: SpecFile, as_json: AsJson = False) -> None:
    """Run the tests written in the spec; exit 1 if one fails."""
    from job.semantics.cli import outcome_lines, run_spec_tests
    from job.semantics.spec_tests import SpecTest

    with report_errors(spec):
        document = read_spec(spec)
        tests = [SpecTest(**written.model_dump()) for written in document.tests]
        if not tests:
            raise StreamjoinError("has no `tests:`")
        with sql_worker() as worker:
            plan = plan_with(document, SqlQuestions(worker.ask))
            outcomes = run_spec_tests(plan, SqlRows(worker.ask), tests)
    facts = [each.as_json for each in outcomes]
    print_facts(facts, chain.from_iterable(map(outcome_lines, outcomes)), as_json=as_json)
    raise typer.Exit(0 if all(each.passed for each in outcomes) else 1)


@app.command(rich_help_panel=WRITE, epilog="Example: streamjoin schema > spec.schema.json")
def schema() -> None:
    """Print the JSON Schema of a spec, for editors."""
    from job.spec.reference import spec_json_schema

    typer.echo(json.dumps(spec_json_schema(), indent=2))


@app.command(rich_help_panel=RUN, epilog="Example: streamjoin run join.yaml")
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
    keep_running: Annotated[
        bool,
        typer.Option(
            "--keep-running",
            help="Stay up in FAILED when the query fails for good, so that the service shows the "
            "reason and `restart` can follow. Also: STREAMJOIN_KEEP_RUNNING=true.",
        ),
    ] = False,
) -> None:
    """Run the join until SIGTERM or Ctrl-C.

    A failure that may pass, for example while no broker answers, is retried. Another failure ends
    the job: exit code 2 if the spec is invalid or changes frozen fields, otherwise 1.
    """
    from job.process import serve

    with report_errors(spec):
        settings = read_settings(JobSettings)
    with report_errors(spec, settings.log_format):
        set_flags = {"new_query": new_query, "keep_running": keep_running}
        settings = settings.model_copy(update={name: True for name in set_flags if set_flags[name]})
        with_sql, alone = (partial(each, registry="required") for each in (plan_with, create_plan))
        failed = serve(spec, read_written_spec, read_text, with_sql, alone, settings)
    raise typer.Exit(1 if failed else 0)


add_running_commands(app)
app.command(
    rich_help_panel=RUNNING_PANEL, epilog="Example: streamjoin reset join.yaml --start earliest"
)(reset)
app.command(rich_help_panel=RUNNING_PANEL, epilog="Example: streamjoin watch join.yaml")(watch)
app.command(
    rich_help_panel=RUNNING_PANEL, epilog="Example: streamjoin state join.yaml --side left --key 42"
)(state)
app.add_typer(output_commands, name="output", rich_help_panel=RUNNING_PANEL)

app.command(
    rich_help_panel=MAINTAIN, epilog="Example: streamjoin change join.yaml changed.yaml --plan"
)(change)
app.command(rich_help_panel=MAINTAIN, epilog="Example: streamjoin compare join.yaml shadow.yaml")(
    compare
)
app.add_typer(checkpoint_commands, name="checkpoint", rich_help_panel=MAINTAIN)
app.add_typer(dead_letter_commands, name="dead-letters", rich_help_panel=MAINTAIN)


def main() -> None:
    run_program(app)


if __name__ == "__main__":
    main()
