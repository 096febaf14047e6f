"""The watermark history in the checkpoint: a file an hour, kept for seven days."""

import json
from typing import Any

from job.checkpoint.watermark_history import WatermarkHistory
from job.event_time.history import WatermarkLine

HOUR_MS = 3_600_000


class Files:
    """The folder of the checkpoint."""

    root = "/checkpoint"

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def names(self, name: str) -> list[str]:
        return [file.split("/")[1] for file in self.files if file.startswith(f"{name}/")]

    def text(self, name: str) -> str | None:
        return self.files.get(name)

    def write(self, name: str, text: str) -> None:
        self.files[name] = text

    def remove(self, name: str) -> None:
        del self.files[name]


def line(at_ms: int) -> WatermarkLine:
    return WatermarkLine(at_ms=at_ms, watermark_ms=at_ms - 5, left_offsets={0: 7, 1025: 3})


def content(files: Files, hour: int) -> list[Any]:
    lines: list[Any] = json.loads(files.files[f"watermarks/{hour}.json"])["lines"]
    return lines


def test_lines_are_read_from_the_files_of_their_hours() -> None:
    files = Files()
    history = WatermarkHistory(files)
    for at_ms in (10, 20, HOUR_MS, 2 * HOUR_MS):
        history.add(line(at_ms))

    assert [2, 1, 1] == [len(content(files, hour)) for hour in range(3)]
    assert [line(HOUR_MS), line(2 * HOUR_MS)] == history.lines(HOUR_MS + 30)
    assert (2 * HOUR_MS, None) == (history.last_at_ms, WatermarkHistory(Files()).last_at_ms)


def test_restarted_job_continues_the_file_of_the_hour() -> None:
    files = Files()
    WatermarkHistory(files).add(line(10))
    WatermarkHistory(files).add(line(20))

    assert [line(10), line(20)] == WatermarkHistory(files).lines(0)


def test_files_are_removed_after_seven_days() -> None:
    files = Files()
    history = WatermarkHistory(files)
    for day in range(9):
        history.add(line(day * 24 * HOUR_MS))

    assert [f"watermarks/{day * 24}.json" for day in range(1, 9)] == list(files.files)


def test_damaged_file_is_left_out() -> None:
    files = Files()
    history = WatermarkHistory(files)
    history.add(line(10))
    files.files["watermarks/1.json"] = "{"
    history.add(line(2 * HOUR_MS))

    assert [line(10), line(2 * HOUR_MS)] == history.lines(0)
