"""What a command prints on stdout: lines, or with --json a JSON document. Errors go to stderr."""

import json
from collections.abc import Iterable
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_facts(facts: object, lines: Iterable[str], *, as_json: bool) -> None:
    """`facts`: JSON values, models or dataclasses."""
    if as_json:
        from pydantic_core import to_jsonable_python

        lines = [json.dumps(facts, indent=2, default=to_jsonable_python)]
    for line in lines:
        typer.echo(line)
