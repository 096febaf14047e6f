"""`streamjoin compare`."""

from pathlib import Path
from typing import Annotated

import typer

from job.commands.output import AsJson, print_facts, warn_on_stderr
from job.commands.spec_file import SpecFile, create_plans, epoch_ms, report_errors


def compare(
    spec: SpecFile,
    other_spec: Annotated[
        Path, typer.Argument(metavar="OTHER_SPEC", help="YAML file of the other join.")
    ],
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only results of input records since this time."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only results of input records before this time. Both queries must have emitted "
            "all of them.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Results to show of each kind.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Compare the output topics of two specs by `streamjoin-id`; exit 1 if they differ.

    Reads the committed records of both topics up to their present ends.
    """
    from job.compare.outputs import compare_outputs

    warn_on_stderr()
    first, second = create_plans([spec, other_spec])
    with report_errors(other_spec):
        report = compare_outputs(
            first,
            second,
            since_ms=epoch_ms("--since", since),
            until_ms=epoch_ms("--until", until),
            limit=limit,
        )
    print_facts(report.as_json, [report.text], as_json=as_json)
    raise typer.Exit(0 if report.comparison.is_equal else 1)
