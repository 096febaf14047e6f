"""Text of DOUBLE and FLOAT in the format of Java 17: 1.0E7, 1.0E-5, 4.9E-324.

Double.toString and Float.toString of Java 17 do not always print the fewest digits that identify
the number (2.0E-322, not 2E-322). So this module ports jdk.internal.math.FloatingDecimal.
Java 19 changed it; the images run Java 17.
"""

import math
import struct
from typing import NamedTuple

_SIGNIFICAND_BITS = 52
_SMALL_EXPONENTS = range(-21, 63)
_BITS_OF_POWERS_OF_5 = tuple((5**n).bit_length() for n in range(27))
# By the number of excess bits of a whole number: insignificant decimal digits.
_INSIGNIFICANT_DIGITS = (
    0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 8, 8, 8,
    9, 9, 9, 9, 10, 10, 10, 11, 11, 11, 12, 12, 12, 12, 13, 13, 13, 14, 14, 14, 15, 15, 15, 15,
    16, 16, 16, 17, 17, 17, 18, 18, 18, 19,
)  # fmt: skip


class _Decimal(NamedTuple):
    digits: str
    exponent: int
    """The number is 0.digits * 10^exponent."""


def double_text(value: float) -> str:
    """Double.toString."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", value))
    return _text(value, bits & (1 << 52) - 1, bits >> 52 & 0x7FF, 52, 1023)


def float_text(value: float) -> str:
    """Float.toString; the value must be a FLOAT."""
    (bits,) = struct.unpack(">I", struct.pack(">f", value))
    return _text(value, bits & (1 << 23) - 1, bits >> 23 & 0xFF, 23, 127)


def _text(value: float, fraction: int, exponent: int, width: int, bias: int) -> str:
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if math.isinf(value):
        return f"{sign}Infinity"
    if value == 0:
        return f"{sign}0.0"
    significant = width + 1
    if exponent == 0:  # subnormal
        shift = significant - fraction.bit_length()
        significant, fraction, exponent = fraction.bit_length(), fraction << shift, 1 - shift
    else:
        fraction |= 1 << width
    fraction <<= _SIGNIFICAND_BITS - width
    return sign + _layout(_decimal(exponent - bias, fraction, significant))


def _layout(number: _Decimal) -> str:
    digits, exponent = number
    if 0 < exponent < 8:
        whole = digits[:exponent].ljust(exponent, "0")
        return f"{whole}.{digits[exponent:] or '0'}"
    if -3 < exponent <= 0:
        return f"0.{'0' * -exponent}{digits}"
    return f"{digits[0]}.{digits[1:] or '0'}E{exponent - 1}"


def _decimal(exponent: int, fraction: int, significant: int) -> _Decimal:
    """dtoa(): `fraction` has 53 bits and stands for a number from 1 to 2, times 2^exponent."""
    tail_zeros = (fraction & -fraction).bit_length() - 1
    fraction_bits = _SIGNIFICAND_BITS + 1 - tail_zeros
    tiny_bits = max(0, fraction_bits - exponent - 1)
    if exponent in _SMALL_EXPONENTS and tiny_bits == 0 and fraction_bits < 64:
        return _whole(exponent, fraction, significant)
    return _fractional(exponent, fraction >> tail_zeros, fraction_bits, tiny_bits, significant)


def _whole(exponent: int, fraction: int, significant: int) -> _Decimal:
    """A whole number below 2^63; digits beyond its precision are rounded away."""
    power = exponent - significant - 1
    in_table = exponent > significant and 1 < power < len(_INSIGNIFICANT_DIGITS)
    insignificant = _INSIGNIFICANT_DIGITS[power] if in_table else 0
    shift = exponent - _SIGNIFICAND_BITS
    value = fraction << shift if shift >= 0 else fraction >> -shift
    if insignificant:
        value, residue = divmod(value, 10**insignificant)
        value += residue >= 10**insignificant >> 1
    digits = str(value)
    return _Decimal(digits.rstrip("0"), insignificant + len(digits))


def _fractional(
    exponent: int, fraction: int, fraction_bits: int, tiny_bits: int, significant: int
) -> _Decimal:
    """Generates digits until the remainder is less than half a unit of the last binary digit."""
    power = _estimated_power(exponent, fraction, fraction_bits)
    b5, s5 = max(0, -power), max(0, power)
    b2, s2 = b5 + tiny_bits + exponent, s5 + tiny_bits
    m2 = b2 - significant
    b2 -= fraction_bits - 1
    common = min(b2, s2)
    b2, s2, m2 = b2 - common, s2 - common, m2 - common
    if fraction_bits == 1:  # below a power of two the distance to the next number is half as large
        m2 -= 1
    if m2 < 0:
        b2, s2, m2 = b2 - m2, s2 - m2, 0
    size = max(_bits(fraction_bits + b2, b5), _bits(s2 + 1, s5 + 1))
    rest, divisor, margin = fraction * 5**b5 << b2, 5**s5 << s2, 5**b5 << m2
    return _digits(rest, divisor, margin, power, 32 if size < 32 else 64 if size < 64 else None)


def _estimated_power(exponent: int, fraction: int, fraction_bits: int) -> int:
    between_1_and_2 = math.ldexp(float(fraction), 1 - fraction_bits)
    estimate = (between_1_and_2 - 1.5) * 0.289529654 + 0.176091259
    return math.floor(estimate + float(exponent) * 0.301029995663981)


def _bits(bits: int, fives: int) -> int:
    known = fives < len(_BITS_OF_POWERS_OF_5)
    return bits + ((0 if fives == 0 else _BITS_OF_POWERS_OF_5[fives]) if known else fives * 3)


def _digits(rest: int, divisor: int, margin: int, power: int, word: int | None) -> _Decimal:
    """`word`: bits of Java's integers, which overflow. None: big integers."""
    tens = divisor * 10
    digits = ""

    def is_high() -> bool:
        # Java compares big integers with >=, others with >.
        if word is None:
            return rest + margin >= tens
        return _wrapped(rest + margin, word) > tens

    def step() -> int:
        nonlocal rest, margin
        digit, rest = divmod(rest, divisor)
        rest, margin = rest * 10, _wrapped(margin * 10, word)
        return digit

    first = step()
    low, high = rest < margin, is_high()
    if first == 0 and not high:
        power -= 1
    else:
        digits = str(first)
    if power < -3 or power >= 8:  # the format has at least one digit after the point
        low = high = False
    while not low and not high:
        digits += str(step())
        low, high = (rest < margin, is_high()) if margin > 0 else (True, True)
    difference = _wrapped(rest * 2 - tens, word)
    if high and (not low or difference > 0 or (difference == 0 and int(digits[-1]) % 2)):
        return _rounded_up(digits, power + 1)
    return _Decimal(digits, power + 1)


def _wrapped(value: int, word: int | None) -> int:
    """`value` as a signed integer of `bits` bits."""
    if word is None:
        return value
    value &= (1 << word) - 1
    return value - (1 << word) if value >> word - 1 else value


def _rounded_up(digits: str, exponent: int) -> _Decimal:
    if set(digits) == {"9"}:
        return _Decimal("1" + "0" * (len(digits) - 1), exponent + 1)
    return _Decimal(str(int(digits) + 1).rjust(len(digits), "0"), exponent)
