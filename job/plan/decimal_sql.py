"""Texts of numbers as DECIMAL, in Spark SQL.

from_json rounds a number to the scale of the column, and drops the commas of a text: `"12,50"`
becomes 1250.00. So it reads a DECIMAL as STRING (text_sql.py). `value` converts the text, and is
null if the DECIMAL cannot have exactly this value.
"""

from job.sql.literals import quoted
from job.sql.types import SqlType

_SHOWN_CHARS = 200
_EXPONENT = "[eE][+-]?[0-9]{1,3}"
_PLAIN = f"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)({_EXPONENT})?$"


def value(raw: str, kind: SqlType) -> str:
    """The DECIMAL of a text. Null if it is not a plain number, or has other digits than it."""
    rounded = _rounded(raw, kind)
    fits = f"^[+-]?[0-9]*([.][0-9]{{0,{kind.scale}}}0*)?$"
    mantissa = f"substring_index(lower({raw}), 'e', 1)"
    same_digits = f"{_digits(mantissa)} = {_digits(f'cast({rounded} AS STRING)')}"
    return (
        f"CASE WHEN {raw} RLIKE {quoted(fits)} OR ({raw} RLIKE {quoted(_PLAIN)} AND {same_digits}) "
        f"THEN {rounded} END"
    )


def problem(raw: str, kind: SqlType) -> str:
    """Why `value` is null for `raw`, which is not null."""
    digits = f"at most {kind.precision - kind.scale} digits before and {kind.scale} after the point"
    return (
        f"concat(left({raw}, {_SHOWN_CHARS}), if({raw} RLIKE {quoted(_PLAIN)}, "
        f"{quoted(f' does not fit: {digits}')}, ' is not a plain number'))"
    )


def _rounded(raw: str, kind: SqlType) -> str:
    return f"try_cast({raw} AS {kind})"


def _digits(number: str) -> str:
    return f"trim(BOTH '0' FROM translate({number}, '+-.', ''))"
