"""`streamjoin watch`."""

from contextlib import suppress
from datetime import UTC, datetime
from time import sleep

from job.commands.running import RunningSpec, TokenFile, Url, connected
from job.errors import JobUnavailableError

POLL_SECONDS = 1.0


def watch(spec: RunningSpec = None, url: Url = None, token_file: TokenFile = None) -> None:
    """Show the running job until Ctrl-C: lag, watermark, results, bad records.

    A screen that is updated each second; without a terminal a line every 5 seconds. It continues
    while the job no longer answers, for example during a restart.
    """
    from rich.console import Console

    from job.api.screen import WatchedJob, live_screen

    with suppress(KeyboardInterrupt), connected(spec, url, token_file) as client:
        query, now = client.query(), datetime.now(UTC)
        job = WatchedJob(query, answered_at=now, at=now)
        with live_screen(Console(highlight=False)) as show:
            while True:
                show(job)
                sleep(POLL_SECONDS)
                now = datetime.now(UTC)
                try:
                    job = WatchedJob(client.query(), answered_at=now, at=now)
                except JobUnavailableError as error:
                    job = job.without_answer(now, str(error))
