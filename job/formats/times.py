"""Conversion of timestamps in the units of a format to epoch microseconds."""

MICROS_A_MILLI = 1_000
MICROS_A_SECOND = 1_000_000
_BIGINT_MAX = 2**63 - 1


def epoch_micros(value: int | None, unit_micros: int) -> int | None:
    """Microseconds since 1970 of `value` units of `unit_micros` microseconds each.

    A result outside BIGINT is clamped: it is far outside the years of a TIMESTAMP.
    """
    if value is None:
        return None
    return max(-_BIGINT_MAX, min(_BIGINT_MAX, value * unit_micros))
