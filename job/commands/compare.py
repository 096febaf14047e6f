"""`streamjoin compare`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from job.commands.spec_file import SpecFile, create_plans, report_errors
from job.errors import RequestError
from job.instants import to_epoch_ms
from job.spec.durations import instant


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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare the output topics of two specs by `streamjoin-id`; exit 1 if they differ.

    Reads the committed records of both topics up to their present ends.
    """
    from job.compare.outputs import compare_outputs

    first, second = create_plans([spec, other_spec])
    with report_errors(other_spec):
        report = compare_outputs(
            first,
            second,
            since_ms=_epoch_ms("--since", since),
            until_ms=_epoch_ms("--until", until),
            limit=limit,
        )
    typer.echo(json.dumps(report.as_json, indent=2) if as_json else report.text)
    raise typer.Exit(0 if report.comparison.is_equal else 1)


def _epoch_ms(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    if (time := instant(text)) is None:
        raise RequestError(f"invalid {option} {text}: use a time such as 2026-01-31T12:00:00Z")
    return to_epoch_ms(time)
