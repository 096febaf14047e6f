"""`streamjoin reset`."""

import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from job.commands.output import AsJson, print_facts
from job.commands.running import (
    POLL_SECONDS,
    Reason,
    RunningSpec,
    TokenFile,
    Url,
    Wait,
    check_reason,
    connected,
)
from job.errors import ConflictError, JobUnavailableError, QueryError, RequestError
from job.protocol.status import QueryState
from job.waiting import wait_until

if TYPE_CHECKING:
    from job.api.query import QueryView, ResetView
    from job.api.start_requests import OffsetsRequest, ResetRequest

# Kafka's offsets are longs.
_OFFSET = re.compile(r"([0-9]{1,9})=([0-9]{1,19})")
_OFFSETS_HELP = (
    "Next offset to read of partitions of the {} topic, e.g. 0=90,1=75. The other partitions "
    "continue where they were."
)


def reset(
    spec: RunningSpec = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="START",
            help="Start of both sides: earliest, latest, or a time such as 2026-01-31T12:00:00Z.",
        ),
    ] = None,
    left: Annotated[
        str | None, typer.Option(metavar="OFFSETS", help=_OFFSETS_HELP.format("left"))
    ] = None,
    right: Annotated[
        str | None, typer.Option(metavar="OFFSETS", help=_OFFSETS_HELP.format("right"))
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Reset without a prompt.")] = False,
    url: Url = None,
    token_file: TokenFile = None,
    reason: Reason = None,
    wait: Wait = 60,
    as_json: AsJson = False,
) -> None:
    """Start a new checkpoint with empty state, from --start, or from the offsets of --left and
    --right.

    The query must be STOPPED. The old checkpoint is kept in another folder. Results may be written
    again. Prints what is lost, then prompts; without a terminal --yes is required. Then `resume`.
    """
    check_reason(reason)
    with connected(spec, url, token_file) as client:
        before = client.query()
        request = _request(before.name, start, left, right)
        if before.state is not QueryState.STOPPED:
            raise ConflictError(
                f"the query is {before.state}, and only a STOPPED query can be reset: stop it "
                "first with `streamjoin stop`",
                allowed=before.allowed_commands,
            )
        _confirm(before, yes=yes, on_stderr=as_json)
        report = client.reset(request, reason).last_reset
        assert report is not None
        if wait:
            report = _await_end(client.query, report, wait)
    print_facts(report, _lines(before.name, report), as_json=as_json)


def _request(
    name: str, start: str | None, left: str | None, right: str | None
) -> "ResetRequest | OffsetsRequest":
    """Raises BadParameter."""
    from pydantic import ValidationError

    from job.api.start_requests import OffsetsRequest, ResetRequest

    offsets = {"left": left, "right": right}
    sides = {side: _offsets(side, text) for side, text in offsets.items() if text is not None}
    if (start is None) == (not sides):
        raise typer.BadParameter("either --start, or --left and --right with offsets, is required")
    try:
        if start is not None:
            return ResetRequest.model_validate({"confirm": name, "start": start})
        return OffsetsRequest.model_validate({"confirm": name, **sides})
    except ValidationError as error:
        problem = error.errors()[0]
        raise typer.BadParameter(f"--{problem['loc'][0]}: {problem['msg']}") from error


def _offsets(side: str, text: str) -> dict[str, int]:
    pairs = [_OFFSET.fullmatch(part) for part in text.split(",")]
    if None in pairs:
        written = f"(written: {text[:100]})"
        raise typer.BadParameter(f"--{side}: must be PARTITION=OFFSET,…, e.g. 0=90,1=75 {written}")
    return {pair[1]: int(pair[2]) for pair in pairs if pair is not None}


def _confirm(query: "QueryView", *, yes: bool, on_stderr: bool) -> None:
    """Raises RequestError if the user does not confirm."""
    typer.echo(
        f"{query.name} starts again with empty state: the rows in its state are not joined, and "
        "results may be written again, with the same ids. The old checkpoint is kept",
        err=on_stderr,
    )
    if not yes and not (sys.stdin.isatty() and typer.confirm(f"Reset {query.name}?", err=True)):
        raise RequestError("nothing was reset: repeat the command with --yes")


def _await_end(
    read: "Callable[[], QueryView]", accepted: "ResetView", seconds: float
) -> "ResetView":
    """Raises QueryError if the reset fails, JobUnavailableError after `seconds`."""

    def ended() -> "ResetView | None":
        now = read().last_reset
        is_this = now is not None and now.requested_at == accepted.requested_at
        return now if is_this and now is not None and now.completed_at is not None else None

    after = wait_until(ended, seconds, POLL_SECONDS)
    if after is None:
        raise JobUnavailableError(
            f"reset was accepted, and it is not completed after {seconds:g} s: look again with "
            "`streamjoin status --json`, at `last_reset`"
        )
    if after.error is not None:
        raise QueryError(f"reset was accepted, and has failed: {after.error}", retryable=False)
    return after


def _lines(name: str, report: "ResetView") -> Iterator[str]:
    if report.completed_at is None:
        yield f"the reset of {name} was accepted: `streamjoin status --json` has `last_reset`"
        return
    if report.old_checkpoint is not None:
        yield f"the old checkpoint is in {report.old_checkpoint}"
    yield f"{name} has empty state: continue with `streamjoin resume`"
