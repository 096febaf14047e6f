"""Calls a function again and again on another thread, while a query runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event


@contextmanager
def repeated(
    step: Callable[[Event], None], *, every_seconds: float, name: str, failed: Callable[[str], None]
) -> Iterator[None]:
    """Context in which a thread `name` calls `step`, with an event that is set at its end.

    A failure ends nothing. `failed`: called with its reason, within the handler of the exception,
    but not for the reason of the failure before, nor after the end.
    """
    ended = Event()
    threading.Thread(
        target=_run, args=(step, every_seconds, ended, failed), name=name, daemon=True
    ).start()
    try:
        yield
    finally:
        ended.set()


def _run(
    step: Callable[[Event], None],
    every_seconds: float,
    ended: Event,
    failed: Callable[[str], None],
) -> None:
    failure: str | None = None
    while not ended.wait(every_seconds):
        try:
            step(ended)
        except Exception as error:
            reason = str(error).partition("\n")[0]
            if reason != failure and not ended.is_set():
                failed(reason)
            failure = reason
