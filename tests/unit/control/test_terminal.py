"""The lines of `streamjoin run` on a terminal."""

import io
import sys
from pathlib import Path

import pytest

from job.api.query import QueryView
from job.api.texts import progress_line
from job.settings import JobSettings
from job.terminal import report_on_terminal
from tests.unit.service.builders import NOW, batch, status, status_after
from tests.unit.specs import plan


def test_line_has_what_the_job_has_done_and_how_far_behind_it_is() -> None:
    assert (
        "12:00:00Z RUNNING: read 20 + 10, joined 30, late 2, bad 6, watermark 15.5 s behind now, "
        "lag 15 + 2 records" == progress_line(QueryView.of(status_after(batch()), NOW), NOW)
    )
    assert (
        "12:00:00Z RUNNING: read 0 + 0, joined 0, late 0, bad 0, watermark none yet, lag - + - "
        "records" == progress_line(QueryView.of(status(), NOW), NOW)
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "log_format", "is_printed"),
    [(Terminal(), "auto", True), (Terminal(), "json", False), (io.StringIO(), "auto", False)],
)
def test_summary_is_printed_on_a_terminal_only(
    stream: io.StringIO, log_format: str, *, is_printed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    settings = JobSettings.model_validate({"log_format": log_format})

    with report_on_terminal(plan(), Path("join.yaml"), settings, status):
        pass

    assert is_printed == ("`streamjoin status join.yaml`" in stream.getvalue())
