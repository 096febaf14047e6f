"""Lines of the log, also with STREAMJOIN_LOG_FORMAT=json."""

import io
import json
import sys

import pytest
import structlog

from job.logs import event_line, json_line, log_to_stderr
from job.redaction import Redaction


def test_line_of_the_jvm_that_is_an_object_is_kept() -> None:
    line = '{"event": "Lost task", "level": "warn"}\n'
    assert line == json_line(line)


@pytest.mark.parametrize("line", ["# A fatal error", "{not json", "[1]", '"text"', "3", 'a "b"'])
def test_other_lines_become_the_event_of_an_object(line: str) -> None:
    written = json_line(f"{line}\n")
    assert written.endswith("}\n")
    fields = json.loads(written)
    assert (line, "info", "jvm") == (fields["event"], fields["level"], fields["logger"])


def test_event_has_the_time_in_utc() -> None:
    fields = json.loads(event_line("x", "error"))
    assert fields["timestamp"].endswith("Z")
    assert ["event", "level", "timestamp"] == sorted(fields)


class Writes(io.StringIO):
    """A stream that records its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)


def test_line_and_its_end_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a line of the JVM, which another thread writes, could begin between them."""
    before, stderr = structlog.get_config(), Writes()
    monkeypatch.setattr(sys, "stderr", stderr)
    try:
        log_to_stderr(Redaction(), "auto")
        structlog.get_logger().info("state")
    finally:
        structlog.configure(**before)
    [line] = stderr.writes
    assert line.endswith("}\n")
