"""Moments as numbers, whatever unit a format counts in."""

MICROS_A_MILLI = 1_000
MICROS_A_SECOND = 1_000_000
_BIGINT_MAX = 2**63 - 1


def epoch_micros(value: int | None, unit_micros: int) -> int | None:
    """`value` units of `unit_micros` after 1970; what a BIGINT cannot hold becomes its end: it is
    far outside the years a TIMESTAMP may have."""
    if value is None:
        return None
    return max(-_BIGINT_MAX, min(_BIGINT_MAX, value * unit_micros))
