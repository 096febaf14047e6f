"""Texts and numbers of a record as timestamps, in Spark SQL."""

from job.sql.literals import quoted

# 0001-01-01T00:00:00.000Z and 9999-12-31T23:59:59.999Z: other numbers are no epoch milliseconds.
_MILLIS_MIN, MILLIS_MAX = -62_135_596_800_000, 253_402_300_799_999
ISO_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
"""Spark's pattern of the timestamps that the job writes."""
_ISO_HYPHENS = (5, 8)
"""Positions of the hyphens in ISO-8601, from 1. Spark alone would also accept '12:00' and 'now'."""

_BASIC_DATE = "^[0-9]{8}[Tt][0-9]{4}"
_BASIC = (r"^(....)(..)(..)[Tt](..)(..)", "$1-$2-$3T$4:$5:")
"""The basic form: hyphens and colons are added. Without seconds, the text then has a last colon."""
_NO_SECONDS = (r"^(.{10}[T ][0-9]{2}:[0-9]{2}):?(?=$|[ Z+-])", "$1:00")
_ZONE_AFTER_OFFSET = (r"^(.{10}[T ][0-9:.]* ?(?:Z|[+-][0-9:]+))\[[^\[\]]+\]$", "$1")
"""As Java writes a ZonedDateTime: 2024-03-01T11:00:00+01:00[Europe/Berlin]."""


def timestamp(raw: str) -> str:
    """Epoch milliseconds, or ISO-8601, without an offset in the time zone in which the SQL is
    evaluated (`in_time_zone`). Null: neither of them.

    Spark's cast reads the usual form of ISO-8601. Other forms are changed to it, only if the cast
    fails. The two hyphens are required, because Spark also accepts '12:00' (today) and 'now'. They
    are checked first: a failed cast to BIGINT raises an exception, and takes 30 times as long as
    the cast to TIMESTAMP.
    """
    millis = f"try_cast({raw} AS BIGINT)"
    extended = " AND ".join(f"substr({raw}, {at}, 1) = '-'" for at in _ISO_HYPHENS)
    other = (
        f"CASE WHEN {extended} THEN {raw} "
        f"WHEN {raw} RLIKE {quoted(_BASIC_DATE)} THEN {_replaced(raw, _BASIC)} END"
    )
    return (
        f"coalesce(CASE WHEN {extended} THEN {_cast(raw)} "
        f"WHEN {_millis_in_range(millis)} THEN timestamp_millis({millis}) END, "
        f"{_cast(_usual(other))})"
    )


def iso_text(time: str) -> str:
    """A timestamp as ISO-8601 in UTC with milliseconds, as `instants.utc_text`."""
    return f"date_format({time}, {quoted(ISO_FORMAT)})"


def of_millis(raw: str) -> str:
    """Epoch milliseconds. Null outside of the years 1 to 9999."""
    return f"CASE WHEN {_millis_in_range(raw)} THEN timestamp_millis({raw}) END"


def of_micros(raw: str) -> str:
    """Epoch microseconds. Null outside of the years 1 to 9999."""
    in_range = f"{raw} BETWEEN {_MILLIS_MIN * 1_000} AND {MILLIS_MAX * 1_000 + 999}"
    return f"CASE WHEN {in_range} THEN timestamp_micros({raw}) END"


def _millis_in_range(millis: str) -> str:
    return f"{millis} BETWEEN {_MILLIS_MIN} AND {MILLIS_MAX}"


def _usual(text: str) -> str:
    """`text` with seconds, capitals and a decimal point, and without a zone after an offset."""
    changed = f"translate({text}, 'tz,', 'TZ.')"
    return _replaced(_replaced(changed, _NO_SECONDS), _ZONE_AFTER_OFFSET)


def _cast(text: str) -> str:
    return f"try_cast({text} AS TIMESTAMP)"


def _replaced(text: str, pattern: tuple[str, str]) -> str:
    found, replacement = map(quoted, pattern)
    return f"regexp_replace({text}, {found}, {replacement})"
