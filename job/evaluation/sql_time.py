"""Functions of Spark SQL on dates and timestamps, in UTC."""

from collections.abc import Callable
from datetime import UTC, datetime

from sqlglot import exp

from job.evaluation.compiled import Compiled, casted, strict
from job.evaluation.sql_cast import DAY_MAX, DAY_MIN, day, instant
from job.evaluation.sql_types import (
    BIGINT,
    DATE,
    INT,
    INT_RANGES,
    TIMESTAMP,
    NotExactError,
    SqlRuntimeError,
)
from job.evaluation.time_text import MICROS_PER_DAY
from job.instants import EPOCH

Build = Callable[[exp.Expr, list[Compiled]], Compiled]


def date_part(part: Callable[[datetime], int]) -> Build:
    def build(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
        days = casted(arguments[0], DATE)
        return strict(
            lambda value: part(datetime.combine(day(value), datetime.min.time(), UTC)), INT, days
        )

    return build


def time_part(micros: int, modulus: int) -> Build:
    def build(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
        at = casted(arguments[0], TIMESTAMP)
        return strict(lambda value: value // micros % modulus, INT, at)

    return build


_TRUNCATED_MICROS = {
    "MICROSECOND": 1, "MILLISECOND": 1_000, "SECOND": 1_000_000, "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000, "DAY": MICROS_PER_DAY,
}  # fmt: skip


def date_trunc(node: exp.Expr, arguments: list[Compiled]) -> Compiled:
    unit = str(node.args["unit"].name).upper()
    at = casted(arguments[0], TIMESTAMP)
    if unit in {"DD"}:
        unit = "DAY"
    if unit in _TRUNCATED_MICROS:
        size = _TRUNCATED_MICROS[unit]
        return strict(lambda value: value - value % size, TIMESTAMP, at)
    if unit in {"MONTH", "MM", "MON", "YEAR", "YYYY", "YY"}:
        whole_year = unit.startswith("Y")

        def truncated(value: int) -> int:
            at = instant(value)
            start = datetime(at.year, 1 if whole_year else at.month, 1, tzinfo=UTC)
            return (start - EPOCH).days * MICROS_PER_DAY

        return strict(truncated, TIMESTAMP, at)
    if unit == "WEEK":  # weeks begin on Monday; 1970-01-01 was a Thursday
        return strict(
            lambda value: (
                (value // MICROS_PER_DAY - (value // MICROS_PER_DAY + 3) % 7) * MICROS_PER_DAY
            ),
            TIMESTAMP,
            at,
        )
    if unit == "QUARTER":
        raise NotExactError(f"date_trunc('{unit}', …)")
    return Compiled(TIMESTAMP, lambda _: None)  # no unit of Spark


def date_add(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
    days, count = casted(arguments[0], DATE), arguments[1]
    if not count.type.is_integral or count.type == BIGINT:
        raise NotExactError(f"date_add() of {count.type} days")

    def moved(start: int, by: int) -> int:
        if not DAY_MIN <= start + by <= DAY_MAX:
            raise NotExactError("a DATE outside the years 1 to 9999")
        return start + by

    return strict(moved, DATE, days, count)


def datediff(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
    end, start = (casted(argument, DATE) for argument in arguments)
    return strict(lambda later, earlier: later - earlier, INT, end, start)


def scaled_instant(factor: int) -> Build:
    """timestamp_millis() and timestamp_seconds()."""

    def build(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
        if not arguments[0].type.is_integral:
            raise NotExactError(f"timestamp_seconds() of {arguments[0].type}")
        low, high = INT_RANGES["BIGINT"]

        def scaled(value: int) -> int:
            if not low <= value * factor <= high:
                raise SqlRuntimeError("DATETIME_OVERFLOW", f"{value} as a TIMESTAMP")
            return value * factor

        return strict(scaled, TIMESTAMP, arguments[0])

    return build


def unix(micros: int) -> Build:
    def build(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
        if arguments[0].type != TIMESTAMP:
            raise NotExactError(f"unix_millis() of {arguments[0].type}")
        return strict(lambda value: value // micros, BIGINT, arguments[0])

    return build
