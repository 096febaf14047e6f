"""The history of the watermark in the checkpoint: a file an hour, with a line a minute."""

from collections.abc import Sequence

import structlog

from job.checkpoint.documents import Documents, read_document, write_document
from job.errors import CheckpointError
from job.event_time.history import KEPT, WatermarkHour, WatermarkLine, hour_of
from job.instants import from_epoch_ms, to_epoch_ms

_FOLDER = "watermarks"
_log = structlog.get_logger()


class WatermarkHistory:
    """Used by one thread that adds lines, and by others that read them."""

    def __init__(self, folder: Documents) -> None:
        self._folder = folder
        self._hour: int | None = None
        self._lines: list[WatermarkLine] = []

    def add(self, line: WatermarkLine) -> None:
        """Write a line, and remove the files that are too old at the begin of an hour."""
        hour = hour_of(line.at_ms)
        if hour != self._hour:
            self._lines = self._read(hour)
            self._hour = hour
            self._remove_before(hour_of(to_epoch_ms(from_epoch_ms(line.at_ms) - KEPT)))
        self._lines.append(line)
        write_document(self._folder, WatermarkHour(lines=self._lines), _name(hour))

    def lines(self, since_ms: int) -> Sequence[WatermarkLine]:
        """Oldest first, from the hour of `since_ms` on."""
        hours = [hour for hour in self._hours() if hour >= hour_of(since_ms)]
        return [line for hour in hours for line in self._read(hour)]

    @property
    def last_at_ms(self) -> int | None:
        """Time of the last line. None: there is no line."""
        lines = (lines[-1] for hour in reversed(self._hours()) if (lines := self._read(hour)))
        last = next(lines, None)
        return None if last is None else last.at_ms

    def clear(self) -> None:
        for hour in self._hours():
            self._folder.remove(_name(hour))

    def _hours(self) -> list[int]:
        names = self._folder.names(_FOLDER)
        return sorted(
            int(name.removesuffix(".json"))
            for name in names
            if name.removesuffix(".json").isdecimal()
        )

    def _read(self, hour: int) -> list[WatermarkLine]:
        try:
            document = read_document(self._folder, WatermarkHour, _name(hour))
        except CheckpointError as error:
            _log.warning("watermark_history_not_read", reason=str(error))
            document = None
        return [] if document is None else list(document.lines)

    def _remove_before(self, oldest: int) -> None:
        for hour in self._hours():
            if hour < oldest:
                self._folder.remove(_name(hour))


def _name(hour: int) -> str:
    return f"{_FOLDER}/{hour}.json"
