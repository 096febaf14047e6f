"""Points in time as epoch milliseconds and as ISO-8601 text in UTC."""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def from_epoch_ms(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def to_epoch_ms(moment: datetime) -> int:
    """Rounded down. Exact, unlike `moment.timestamp()`, which is a float."""
    return (moment - EPOCH) // _MILLISECOND


def time_text(milliseconds: int) -> str:
    """As `utc_text`, from epoch milliseconds."""
    return utc_text(from_epoch_ms(milliseconds))


def utc_text(moment: datetime) -> str:
    """ISO-8601 in UTC with milliseconds, e.g. 2026-01-31T12:00:00.000Z. A naive time is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    text = aware.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
