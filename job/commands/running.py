"""Commands for the running job: on its socket, or with --url through the service."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from job.commands.output import AsJson, print_facts
from job.commands.spec_file import read_name, report_errors
from job.commands.user import user_name
from job.errors import JobUnavailableError, QueryError, RequestError
from job.protocol.calls import REASON_CHARS_MAX
from job.protocol.status import QueryState
from job.settings import JobSettings, read_settings
from job.waiting import wait_until

if TYPE_CHECKING:
    from job.api.client import JobClient, QueryVerb
    from job.api.query import QueryView

POLL_SECONDS = 0.2
RUNNING_PANEL = "Watch and control the running job"
"""Panel of the help."""
_STATES: "Mapping[QueryVerb, QueryState]" = {
    "pause": QueryState.PAUSED,
    "resume": QueryState.RUNNING,
    "stop": QueryState.STOPPED,
    "restart": QueryState.RUNNING,
}
_HELP: "Mapping[QueryVerb, str]" = {
    "pause": "Pause the query after its batch. `resume` takes effect at once.",
    "resume": "Continue a query that is PAUSED or STOPPED.",
    "stop": "Stop the query after its batch, and end Spark. The process of the job stays up, and "
    "the query stays stopped, also if the process starts again, until `resume`.",
    "restart": "Restart the query from its checkpoint, also after a failure. The job reads its "
    "spec file again; frozen fields that differ are refused before the query stops.",
}

RunningSpec = Annotated[
    Path | None,
    typer.Argument(
        metavar="SPEC",
        help="YAML file of the join. The job on STREAMJOIN_SOCKET must have its `name`.",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Call the service at this address instead of the socket."),
]
TokenFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="With --url: file with the token to send.")
]
Reason = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="Why. Kept with the command, at most 300 characters; see `status`."
    ),
]
Wait = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0,
        max=86_400,
        help="How long to wait until the command has taken effect. 0: do not wait.",
    ),
]


def add_running_commands(app: typer.Typer) -> None:
    example = "Example: streamjoin {} join.yaml"
    for command in (status, lag):
        name = command.__name__
        app.command(name, rich_help_panel=RUNNING_PANEL, epilog=example.format(name))(command)
    for verb, text in _HELP.items():
        add = app.command(
            verb, rich_help_panel=RUNNING_PANEL, help=text, epilog=example.format(verb)
        )
        add(_query_command(verb))


def status(
    spec: RunningSpec = None, url: Url = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Show the state of the running job: lag, watermark, bad records, last failure.

    Exit code 1 if no job answers, or if the query is FAILED.
    """
    from job.api.texts import state_lines

    with connected(spec, url, token_file) as client:
        query = client.query()
    print_facts(query, state_lines(query, datetime.now(UTC)), as_json=as_json)
    raise typer.Exit(1 if query.state is QueryState.FAILED else 0)


def lag(
    spec: RunningSpec = None, url: Url = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Show how far each partition is read: position, end, unread records, event time."""
    from job.api.texts import lag_lines

    with connected(spec, url, token_file) as client:
        offsets = client.offsets()
    print_facts(offsets, lag_lines(offsets, datetime.now(UTC)), as_json=as_json)


def _query_command(verb: "QueryVerb") -> Callable[..., None]:
    def command(
        spec: RunningSpec = None,
        url: Url = None,
        token_file: TokenFile = None,
        reason: Reason = None,
        wait: Wait = 60,
        as_json: AsJson = False,
    ) -> None:
        from job.api.query import RestartView

        check_reason(reason)
        with connected(spec, url, token_file) as client:
            before = client.query()
            accepted = after = client.command(verb, reason)
            if wait:
                after = _await_effect(verb, client.query, before, wait)
        lines = [accepted.spec_file] if isinstance(accepted, RestartView) else []
        accepted_only = "" if wait else f"{verb} is accepted, and may not have taken effect: "
        lines.append(f"{accepted_only}{after.name} is {after.state}")
        if after.state is QueryState.RUNNING and _waits_for_progress(before, after):
            lines.append("it has made no progress yet: look again with `streamjoin status`")
        print_facts(after, lines, as_json=as_json)

    return command


def _waits_for_progress(before: "QueryView", now: "QueryView") -> bool:
    """Whether the query was started or resumed since `before`, and has made no progress since."""
    progress_at = now.last_progress_at
    has_progress = progress_at is not None and progress_at >= now.state_since
    return _has_begun(before, now) and not has_progress


def _has_begun(before: "QueryView", now: "QueryView") -> bool:
    """Whether the query entered its state after `before`. The end of a pause continues the same
    run, and so does not change `run_id`."""
    return now.run_id != before.run_id or now.state_since != before.state_since


def check_reason(reason: str | None) -> None:
    """Raises BadParameter if the job would refuse the reason."""
    if reason is not None and len(reason) > REASON_CHARS_MAX:
        raise typer.BadParameter(f"--reason has more than {REASON_CHARS_MAX} characters")


@contextmanager
def connected(spec: Path | None, url: str | None, token_file: Path | None) -> "Iterator[JobClient]":
    """A client of the job. Prints errors as `report_errors`."""
    if spec is None and url is None:
        raise typer.BadParameter("SPEC or --url is required")
    if token_file is not None and url is None:
        raise typer.BadParameter("--token-file requires --url")
    with report_errors(spec):
        from job.api.client import HttpClient, SocketClient, read_token

        name = None if spec is None else read_name(spec)
        if url is None:
            assert name is not None
            yield SocketClient(read_settings(JobSettings).socket, name, user_name())
            return
        token = None if token_file is None else read_token(token_file)
        try:
            client = HttpClient(url, token, name)
        except RequestError as error:
            raise typer.BadParameter(str(error)) from error
        yield client


def _await_effect(
    verb: "QueryVerb", read: "Callable[[], QueryView]", before: "QueryView", seconds: float
) -> "QueryView":
    """The state once the command has taken effect. Raises QueryError if the query fails instead,
    JobUnavailableError after `seconds`.

    A start, or the end of a pause, has taken effect once the query has made progress: a query that
    fails in its next batch is RUNNING before.
    """

    def has_taken_effect() -> "QueryView | None":
        try:
            now = read()
        except JobUnavailableError:
            return None  # the job closes its socket while another query takes over
        if now.state is QueryState.FAILED and now.last_failure != before.last_failure:
            assert now.last_failure is not None
            raise QueryError(
                f"{verb} was accepted, and the query has failed: {now.last_failure.message}",
                retryable=False,
            )
        if now.state is not _STATES[verb]:
            return None
        if verb == "restart" and now.run_id == before.run_id:
            return None
        is_running = now.state is QueryState.RUNNING
        return None if is_running and _waits_for_progress(before, now) else now

    after = wait_until(has_taken_effect, seconds, POLL_SECONDS)
    if after is not None:
        return after
    try:
        now = read()
    except JobUnavailableError as error:
        raise JobUnavailableError(
            f"{verb} was accepted, and the job has ended since: its log contains the reason, and "
            "`streamjoin run` starts it again"
        ) from error
    if now.state is _STATES[verb] and _has_begun(before, now):
        return now  # and the caller reports that there is no progress
    failure = "" if now.last_failure is None else f". Its last failure: {now.last_failure.message}"
    raise JobUnavailableError(
        f"{verb} was accepted, and the query is still {now.state} after {seconds:g} s: look again "
        f"with `streamjoin status`{failure}"
    )
