"""`streamjoin explain`."""

from datetime import datetime
from typing import Annotated

import typer

from job.commands.output import AsJson, print_facts
from job.commands.running import RunningSpec, TokenFile, Url, connected
from job.spec.durations import instant


def explain(
    key: Annotated[
        list[str],
        typer.Option(help="Value of one key column, or null; repeat it in the order of the spec."),
    ],
    spec: RunningSpec = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time from which the topics are read, e.g. 2026-01-31T12:00:00Z. Default: long "
            "enough for the rows that the join still has in state.",
        ),
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Print what happened to each record of a key, and why a row was not emitted.

    The running job reads up to 64 MiB of its topics. With --url the token needs the scope control.
    """
    since_time = _time(since)
    with connected(spec, url, token_file) as client:
        found = client.explain(key, since_time)
    print_facts(found, found.sentences, as_json=as_json)


def _time(text: str | None) -> datetime | None:
    time = None if text is None else instant(text)
    if text is not None and time is None:
        raise typer.BadParameter(
            f"--since: must be ISO-8601 with an offset, e.g. 2026-01-31T12:00:00Z (written: {text})"
        )
    return time
