"""Lines of the log with STREAMJOIN_LOG_FORMAT=json."""

import json

import pytest

from job.logs import event_line, json_line


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
