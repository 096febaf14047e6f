"""What a command prints on stdout: lines, or with --json a JSON document. Errors go to stderr."""

import json
from collections.abc import Iterable
from typing import Annotated

import typer

from job.settings import JobSettings, read_settings


def warn_on_stderr() -> None:
    """Log to stderr, as the job does: stdout has only what the command prints."""
    # Commands that log nothing start without it.
    from job.logs import log_to_stderr
    from job.redaction import Redaction

    log_to_stderr(Redaction(), read_settings(JobSettings).log_format)


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_facts(facts: object, lines: Iterable[str], *, as_json: bool) -> None:
    """`facts`: JSON values, models or dataclasses."""
    if as_json:
        from pydantic_core import to_jsonable_python

        lines = [json.dumps(facts, indent=2, default=to_jsonable_python)]
    for line in lines:
        typer.echo(line)
