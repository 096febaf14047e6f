"""Parses and formats dates and timestamps as Spark does, in UTC.

Ports SparkDateTimeUtils.stringToDate and parseTimestampString. Years may be outside of 1 to 9999,
the range of Python's datetime.
"""

import re
from collections.abc import Iterator
from functools import cache
from zoneinfo import available_timezones

from job.evaluation.sql_types import INT_RANGES, NotExactError

MICROS_PER_SECOND = 1_000_000
MICROS_PER_DAY = 86_400 * MICROS_PER_SECOND

# Spark trims blanks and control characters, byte by byte.
SPARK_WHITESPACE = "".join(map(chr, [*range(33), 127]))

_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(
    r"([+-]?)([0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})"
    r"(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9.].*)?)?)?)?)?)?",
    re.DOTALL,
)
_TIME_OF_DAY = re.compile(r"T[0-9]{1,2}(:.*)?|[0-9]{1,2}:.*", re.DOTALL)
_OFFSET = re.compile(
    r"([+-])(?:([0-9])|([0-9]{2})(?::?([0-9]{2}))?|([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"|([0-9]{2})([0-9]{2})([0-9]{2}))"
)
_OFFSET_SECONDS_MAX = 18 * 3600
# ZoneId.SHORT_IDS: abbreviations of time zones in Java.
_SHORT_IDS = frozenset({
    "ACT", "AET", "AGT", "ART", "AST", "BET", "BST", "CAT", "CNT", "CST", "CTT", "EAT", "ECT",
    "EST", "HST", "IET", "IST", "JST", "MIT", "MST", "NET", "NST", "PLT", "PNT", "PRT", "PST",
    "SST", "VST",
})  # fmt: skip


def days_of(year: int, month: int, day: int) -> int | None:
    """Days from 1970-01-01 in the proleptic Gregorian calendar. None: the day does not exist."""
    if not 1 <= month <= 12 or not 1 <= day <= _month_length(year, month):
        return None
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return (
        era * 146_097
        + year_of_era * 365
        + year_of_era // 4
        - year_of_era // 100
        + (day_of_year - 719_468)
    )


def date_parts(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days from 1970-01-01."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = (shifted_month + 2) % 12 + 1
    return era * 400 + year_of_era + (month <= 2), month, day


def _month_length(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in {4, 6, 9, 11} else 31


def date_of(text: str) -> int | None:
    """Days from 1970 of yyyy[-[m]m[-[d]d[[ |T]anything]]]; None for other text."""
    match = _DATE.fullmatch(text.strip(SPARK_WHITESPACE))
    if match is None:
        return None
    days = days_of(*_year_month_day(match))
    low, high = INT_RANGES["INT"]
    return days if days is not None and low <= days <= high else None


def timestamp_of(text: str) -> int | None:
    """Microseconds from 1970 of yyyy[-[m]m[-[d]d[[ |T][h]h[:[m]m[:[s]s[.fraction][zone]]]]]]; None
    for other text.

    NotExactError for the name of a time zone, and for a time of day alone, which means today.
    """
    body = text.strip(SPARK_WHITESPACE)
    match = _TIMESTAMP.fullmatch(body)
    if match is None:
        if _TIME_OF_DAY.fullmatch(body):
            raise NotExactError(f"the timestamp {body!r}")
        return None
    days = days_of(*_year_month_day(match))
    hour, minute, second = (int(match[group] or 0) for group in (5, 6, 7))
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    offset = _offset_seconds(match[9])
    if offset is None:
        return None
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset
    micros = seconds * MICROS_PER_SECOND + int((match[8] or "")[:6].ljust(6, "0"))
    low, high = INT_RANGES["BIGINT"]
    return micros if low <= micros <= high else None


def _year_month_day(match: re.Match[str]) -> tuple[int, int, int]:
    sign, year, month, day = match.groups()[:4]
    return int(sign + year), 1 if month is None else int(month), 1 if day is None else int(day)


def _offset_seconds(zone: str | None) -> int | None:
    """Seconds east of UTC, as ZoneId.of; None: unknown zone."""
    zone = (zone or "Z").strip("".join(map(chr, range(33))))
    # getZoneId: the forms +h:mm and +hh:m of Spark 2.
    zone = re.sub(r"([+-])([0-9]):", r"\g<1>0\2:", zone, count=1)
    zone = re.sub(r"([+-])([0-9]{2}):([0-9])$", r"\1\2:0\3", zone, count=1)
    if zone in {"Z", "UTC", "GMT", "UT", "GMT0"}:
        return 0
    for prefix in ("UTC", "GMT", "UT"):
        if zone.startswith((f"{prefix}+", f"{prefix}-")):
            zone = zone.removeprefix(prefix)
            break
    match = _OFFSET.fullmatch(zone)
    if match is None:
        if _may_be_region(zone):
            raise NotExactError(f"a timestamp with the time zone {zone}: write its offset")
        return None
    hours, minutes, seconds = (int(part or 0) for part in _offset_parts(match))
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > _OFFSET_SECONDS_MAX:
        return None
    return -total if match[1] == "-" else total


def _may_be_region(zone: str) -> bool:
    known = _regions()
    return zone in _SHORT_IDS or (zone in known if known else zone[:1].isalpha())


@cache
def _regions() -> frozenset[str]:
    """Names of time zones; empty if the machine has no time zone database."""
    return frozenset(available_timezones())


def _offset_parts(match: re.Match[str]) -> Iterator[str | None]:
    for groups in ((2, None, None), (3, 4, None), (5, 6, 7), (8, 9, 10)):
        if match[groups[0]] is not None:
            yield from (None if group is None else match[group] for group in groups)
            return


def date_text(days: int) -> str:
    """yyyy-MM-dd, with a sign if the year is negative or has more than four digits."""
    year, month, day = date_parts(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"


def timestamp_text(micros: int) -> str:
    """Text of CAST, in UTC: a fraction of a second has no trailing zeros."""
    fraction = micros % MICROS_PER_SECOND
    text = f"{date_text(micros // MICROS_PER_DAY)} {_time_text(micros)}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def json_timestamp_text(micros: int) -> str:
    """Text of to_json in the job, in UTC, with milliseconds."""
    millis = micros % MICROS_PER_SECOND // 1000
    return f"{date_text(micros // MICROS_PER_DAY)}T{_time_text(micros)}.{millis:03}Z"


def _time_text(micros: int) -> str:
    seconds = micros // MICROS_PER_SECOND % 86_400
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
