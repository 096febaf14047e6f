"""`streamjoin output verify`."""

from typing import Annotated

import typer

from job.commands.output import AsJson, print_facts, warn_on_stderr
from job.commands.running import TokenFile, Url, connected
from job.commands.spec_file import (
    SIMULATION_HEAP_MB,
    SpecFile,
    epoch_ms,
    plan_with,
    read_spec,
    sql_worker,
)
from job.sql.questions import SqlQuestions
from job.sql.rows import SqlRows

output_commands = typer.Typer(
    help="Check the results of a join.", no_args_is_help=True, callback=warn_on_stderr
)


@output_commands.command(
    "verify", epilog="Example: streamjoin output verify join.yaml --since 2026-01-31T12:00:00Z"
)
def verify(
    spec: SpecFile,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Read the input records since this time."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Read the input records before this time. Required if no job answers; the query "
            "must then have emitted all of their results.",
        ),
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare results with the specification on the input records.

    Reports results that are missing, not given by the specification, different, or written again.
    Exit 1 if there are any, or if no result was checked.
    """
    from job.verify.verify import verify_output

    with (
        connected(spec, url, token_file) as job,
        sql_worker(heap_mb=SIMULATION_HEAP_MB) as worker,
    ):
        bounds = epoch_ms("--since", since), epoch_ms("--until", until)
        plan = plan_with(read_spec(spec), SqlQuestions(worker.ask), registry="required")
        report = verify_output(plan, SqlRows(worker.ask), job, *bounds)
    print_facts(report.as_json, [report.text], as_json=as_json)
    raise typer.Exit(0 if report.passes else 1)
