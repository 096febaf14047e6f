"""The state partition of a row: Murmur3 of the join keys modulo the number of partitions.

Ports HashPartitioning: pmod(hash(keys), numPartitions), with Spark's Murmur3 (seed 42; the hash of
a column is the seed of the next; a null keeps the seed). Rows with equal keys of both sides have
the same partition.
"""

import struct
from collections.abc import Sequence
from decimal import Context, Decimal

SEED = 42
_MASK = 0xFFFFFFFF
_DECIMAL_DIGITS_OF_A_LONG = 18
_EXACT = Context(prec=50)


def state_partition(values: Sequence[object], types: Sequence[str], num_partitions: int) -> int:
    """The partition of the row with these join keys. `types`: DDL, e.g. BIGINT."""
    return murmur3(values, types) % num_partitions


def murmur3(values: Sequence[object], types: Sequence[str], seed: int = SEED) -> int:
    """Spark's hash(values…)."""
    result = seed
    for value, sql_type in zip(values, types, strict=True):
        result = _hash_value(value, sql_type, result)
    return _signed(result)


def _hash_value(value: object, sql_type: str, seed: int) -> int:
    kind = sql_type.partition("(")[0].upper()
    match value:
        case None:
            return seed
        case bool():
            return _hash_int(int(value), seed)
        case int() if kind in {"TINYINT", "SMALLINT", "INT", "DATE"}:
            return _hash_int(value, seed)
        case int() if kind in {"BIGINT", "TIMESTAMP"}:
            return _hash_long(value, seed)
        case float() if kind == "FLOAT":
            return _hash_int(struct.unpack("<i", struct.pack("<f", value + 0.0))[0], seed)
        case float() if kind == "DOUBLE":
            return _hash_long(struct.unpack("<q", struct.pack("<d", value + 0.0))[0], seed)
        case str():
            return _hash_bytes(value.encode(), seed)
        case bytes():
            return _hash_bytes(value, seed)
        case Decimal():
            return _hash_decimal(value, sql_type, seed)
    raise ValueError(f"a join key of type {sql_type}")


def _hash_decimal(value: Decimal, sql_type: str, seed: int) -> int:
    """Hashes the unscaled number: as a long if the precision allows it, otherwise its bytes."""
    precision, scale = (int(part) for part in sql_type[len("DECIMAL(") : -1].split(","))
    unscaled = int(value.scaleb(scale, _EXACT))
    if precision <= _DECIMAL_DIGITS_OF_A_LONG:
        return _hash_long(unscaled, seed)
    # BigInteger.toByteArray: big-endian, the fewest bytes that include the sign bit.
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    size = magnitude.bit_length() // 8 + 1
    return _hash_bytes(unscaled.to_bytes(size, "big", signed=True), seed)


def _hash_int(value: int, seed: int) -> int:
    return _finish(_mix_h1(seed, _mix_k1(value & _MASK)), 4)


def _hash_long(value: int, seed: int) -> int:
    low, high = value & _MASK, (value >> 32) & _MASK
    return _finish(_mix_h1(_mix_h1(seed, _mix_k1(low)), _mix_k1(high)), 8)


def _hash_bytes(data: bytes, seed: int) -> int:
    """Hashes whole words, then each remaining byte as a word, unlike standard Murmur3."""
    aligned = len(data) - len(data) % 4
    h1 = seed
    for (word,) in struct.iter_unpack("<I", data[:aligned]):
        h1 = _mix_h1(h1, _mix_k1(word))
    for (byte,) in struct.iter_unpack("<b", data[aligned:]):
        h1 = _mix_h1(h1, _mix_k1(byte & _MASK))
    return _finish(h1, len(data))


def _mix_k1(k1: int) -> int:
    return _rotated(k1 * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK


def _mix_h1(h1: int, k1: int) -> int:
    return _rotated((h1 ^ k1) & _MASK, 13) * 5 + 0xE6546B64 & _MASK


def _finish(h1: int, length: int) -> int:
    h1 = (h1 ^ length) & _MASK
    h1 = (h1 ^ h1 >> 16) * 0x85EBCA6B & _MASK
    h1 = (h1 ^ h1 >> 13) * 0xC2B2AE35 & _MASK
    return h1 ^ h1 >> 16


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


def _signed(value: int) -> int:
    return value - (1 << 32) if value & 0x80000000 else value
