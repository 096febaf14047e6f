"""The log of the job on stderr: a line for each event of the job and of its JVM."""

import json
import logging
import sys
from datetime import UTC, datetime

import structlog

from job.redaction import Redaction
from job.settings import LogFormat


def log_to_stderr(redaction: Redaction, log_format: LogFormat) -> None:
    """Log JSON lines, or with the format `auto` readable lines on a terminal."""
    readable = log_format == "auto" and sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redaction.scrub_event,
            structlog.dev.ConsoleRenderer() if readable else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # One write per line: lines of the JVM are written at the same time by another thread.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    if log_format == "json":
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_OfLibraries(redaction))
        logging.getLogger().handlers = [handler]


class _OfLibraries(logging.Formatter):
    """Formats what libraries log, for example py4j when the JVM has ended."""

    def __init__(self, redaction: Redaction) -> None:
        super().__init__()
        self._redaction = redaction

    def format(self, record: logging.LogRecord) -> str:
        text = self._redaction.scrubbed(super().format(record))
        return event_line(text, record.levelname.lower(), logger=record.name).rstrip("\n")


def json_line(line: str) -> str:
    """The line as a JSON object: unchanged if it is one, otherwise as the event of an object.

    Not everything that a JVM writes passes through its logging: crash reports do not.
    """
    try:
        if isinstance(json.loads(line), dict):
            return line
    except ValueError:
        pass
    return event_line(line.rstrip("\n"), "info", logger="jvm")


def event_line(event: str, level: str, **fields: str) -> str:
    """A line in the format of the log, for what is not logged."""
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"event": event, "level": level, "timestamp": now, **fields}) + "\n"
