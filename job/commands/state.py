"""`streamjoin state`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from job.commands.output import AsJson, print_facts
from job.commands.running import RunningSpec, TokenFile, Url, connected
from job.commands.spec_file import create_plan, read_name, read_spec, report_errors
from job.protocol.reports import StateCount
from job.protocol.results import KeyRows
from job.protocol.status import QueryState
from job.settings import JobSettings, read_settings
from job.spec.sides import SIDES, Side

if TYPE_CHECKING:
    from job.api.client import JobClient


def state(
    spec: RunningSpec = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help="Value of one key column; repeat it in the order of the spec."),
    ] = None,
    side: Annotated[
        Side | None, typer.Option(help="Side of the rows.", show_default="both")
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the rows of a key in state; without a key, their number.

    The running job reads them as of its last batch. Without --url, the command reads the checkpoint
    itself if the query is STOPPED, or if no job runs on STREAMJOIN_SOCKET.
    """
    sides = SIDES if side is None else (side,)
    if spec is None or url is not None or token_file is not None or _has_query(spec):
        with connected(spec, url, token_file) as client:
            found = _of_job(client, sides, key or [])
    else:
        from job.checkpoint import cli

        with report_errors(spec):
            plan = create_plan(read_spec(spec))
            found = cli.state(plan, read_settings(JobSettings), sides, key or [])
    print_facts(found, _lines(found), as_json=as_json)


def _has_query(spec: Path) -> bool:
    """Whether the job on the socket has the join of `spec`, and its query is not STOPPED."""
    from job.protocol.caller import running_job

    with report_errors(spec):
        name, job = read_name(spec), running_job(read_settings(JobSettings).socket)
    return job is not None and job.name == name and job.state is not QueryState.STOPPED


def _of_job(
    client: "JobClient", sides: Sequence[Side], key: list[str]
) -> list[KeyRows] | StateCount:
    return [client.state_rows(side, key) for side in sides] if key else client.state_count()


def _lines(found: list[KeyRows] | StateCount) -> Iterator[str]:
    if isinstance(found, list):
        for of_side in found:
            more, count = "more than " if of_side.more else "", len(of_side.rows)
            rows = f"{more}{count} {of_side.side} row{'' if count == 1 else 's'}"
            yield f"{rows} with key {of_side.key} in state after batch {of_side.batch_id}"
            yield from (row.model_dump_json() for row in of_side.rows)
        return
    for name in SIDES:
        for part in found.side(name).partitions:
            unmatched = part.unmatched_rows
            more = "" if unmatched is None else f", {unmatched:,} without a match so far"
            yield f"{name} state partition {part.partition}: {part.rows:,} rows{more}"
