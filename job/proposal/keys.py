"""Pairs of expressions that can be the key, with the evidence for each in the samples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from itertools import combinations

from job.proposal.columns import Table
from job.proposal.evidence import Evidence, Keys, Times
from job.proposal.fields import RECORD_KEY, Field, fields_of, record_key_fields
from job.proposal.key_names import is_key, likeness
from job.proposal.times import is_time
from job.semantics.json_lines import Number
from job.sql.types import BIGINT, INT, STRING, SqlType

KEY_TYPES = (INT, BIGINT, STRING)
_COMPARED = 20
"""Pairs of fields, the best by their values and names, whose distances in time are compared."""
_COMBINED = 8
"""Pairs of fields that are combined to keys of two parts."""


class Strength(IntEnum):
    """Of the evidence for a key."""

    WEAK = 0
    """The values may be equal by chance: the key is not proposed."""
    FAIR = 1
    STRONG = 2


@dataclass(frozen=True, eq=False)
class KeyField:
    """An expression of one side that can be a part of its key."""

    sql: str
    parts: tuple[str, ...]
    """Names from the column to the field. Empty: a record key, or an expression of the user."""
    type: SqlType
    values: list[str | None]
    is_fixed: bool = False
    """The user has given the expression: casts belong to the other side."""

    @cached_property
    def distinct(self) -> frozenset[str]:
        return frozenset(value for value in self.values if value is not None)

    @cached_property
    def digits(self) -> int:
        """Digits of each value, if some begin with 0. 0: the values are no such numbers."""
        widths = {len(value) if value.isdigit() else 0 for value in self.distinct}
        is_padded = any(value.startswith("0") for value in self.distinct)
        return max(widths) if len(widths) == 1 and is_padded and widths != {1} else 0

    @property
    def is_constant(self) -> bool:
        return len(self.distinct) < 2 <= len(self.values)

    @property
    def is_unique(self) -> bool:
        return len(self.distinct) == sum(value is not None for value in self.values)


@dataclass(frozen=True)
class KeySide:
    """What the key of a side is chosen from."""

    topic: str
    fields: Sequence[KeyField]
    times: Times


Parts = tuple[KeyField, KeyField]
"""A part of the key, left and right."""


@dataclass(frozen=True)
class KeyPair:
    """A key of both sides."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    evidence: Evidence
    strength: Strength
    score: float


def key_fields(table: Table, quoted: Mapping[str, str]) -> list[KeyField]:
    """The fields that can be a key: no times."""
    return [
        KeyField(field.sql(quoted), _named_parts(field), field.type, _texts(field))
        for field in (*fields_of(table), *record_key_fields(table))
        if field.type in KEY_TYPES and not is_time(field)
    ]


def _named_parts(field: Field) -> tuple[str, ...]:
    """Without the name of the record key."""
    return field.parts[1:] if field.parts[0] == RECORD_KEY else field.parts


def _texts(field: Field) -> list[str | None]:
    if field.type == STRING:
        return [str(value) if isinstance(value, str) and value else None for value in field.values]
    return [str(int(value)) if isinstance(value, Number) else None for value in field.values]


def key_pairs(left: KeySide, right: KeySide) -> list[KeyPair]:
    """Keys with values that both samples contain, the likeliest first."""
    sides = (left, right)
    compared = [
        (parts, likeness((left.topic, a.parts), (right.topic, b.parts)))
        for a in left.fields
        for b in right.fields
        for parts in _comparable(a, b)
        if parts[0].distinct & parts[1].distinct and not (a.is_constant and b.is_constant)
        if not (left.topic == right.topic and a.sql == b.sql and a.is_unique)
    ]
    compared.sort(key=lambda each: -_score(_evidence([each[0]], *sides), each[1], 0.0))
    pairs = [_key_pair([parts], names, *sides) for parts, names in compared[:_COMPARED]]
    pairs += _of_two_parts(compared[:_COMBINED], *sides)
    pairs.sort(key=_order)
    return _without_ambiguity(pairs, is_self_join=left.topic == right.topic)


def _order(pair: KeyPair) -> tuple[float, ...]:
    is_before_left = pair.evidence.distances[:1] < [0]
    return -pair.strength, -round(pair.score, 3), is_before_left


def _comparable(a: KeyField, b: KeyField) -> Iterator[Parts]:
    """Both fields, with the casts with which equal numbers are equal values."""
    if a.type != b.type and STRING not in (a.type, b.type):
        yield _cast(a, BIGINT), _cast(b, BIGINT)
    elif a.is_fixed and a.type != STRING == b.type:
        yield a, _number(b, a.type)
    elif b.is_fixed and b.type != STRING == a.type:
        yield _number(a, b.type), b
    elif a.digits > b.digits:
        yield a, _padded(_cast(b, STRING), a.digits)
    elif b.digits > a.digits:
        yield _padded(_cast(a, STRING), b.digits), b
    elif a.type == b.type:
        yield a, b
    else:
        yield _cast(a, STRING), _cast(b, STRING)


def _cast(field: KeyField, target: SqlType) -> KeyField:
    if field.type == target:
        return field
    return replace(field, sql=f"cast({field.sql} AS {target})", type=target)


def _number(field: KeyField, target: SqlType) -> KeyField:
    values = [
        str(int(value)) if value and value.isascii() and value.isdigit() else None
        for value in field.values
    ]
    sql = f"try_cast({field.sql} AS {target})"
    return replace(field, sql=sql, type=target, values=values)


def _padded(field: KeyField, width: int) -> KeyField:
    """With zeros in front. Values that are longer, or no numbers, have no partner."""
    values = [
        value.zfill(width) if value and value.isdigit() and len(value) <= width else None
        for value in field.values
    ]
    return replace(field, sql=f"lpad({field.sql}, {width}, '0')", values=values)


def _evidence(key: Sequence[Parts], left: KeySide, right: KeySide) -> Evidence:
    keys = [_keys([parts[side] for parts in key]) for side in (0, 1)]
    return Evidence(keys[0], left.times, keys[1], right.times)


def _keys(fields: Sequence[KeyField]) -> Keys:
    rows = zip(*(field.values for field in fields), strict=True)
    return [None if None in row else row for row in rows]


def _score(evidence: Evidence, names: float, closeness: float) -> float:
    of_values = (2 * evidence.matched + closeness) * evidence.identity
    return of_values + names * (0.3 + 0.7 * min(1.0, evidence.identity * 5))


def _key_pair(key: Sequence[Parts], names: float, left: KeySide, right: KeySide) -> KeyPair:
    evidence = _evidence(key, left, right)
    return KeyPair(
        tuple(a.sql for a, _ in key),
        tuple(b.sql for _, b in key),
        evidence,
        _strength(key, evidence, names),
        _score(evidence, names, evidence.closeness),
    )


def _strength(key: Sequence[Parts], evidence: Evidence, names: float) -> Strength:
    supports = [names >= 0.4, evidence.closeness >= 0.8, evidence.is_long]
    is_named_as_key = names >= 1 and all(is_key(field.parts) for parts in key for field in parts)
    if names < 0 or not any(supports) or (evidence.identity < 0.1 and not is_named_as_key):
        return Strength.WEAK
    is_full = evidence.identity >= 0.5 and evidence.matched >= 0.4
    return Strength.STRONG if is_full and sum(supports) > 1 else Strength.FAIR


def _of_two_parts(
    compared: Sequence[tuple[Parts, float]], left: KeySide, right: KeySide
) -> Iterator[KeyPair]:
    """Keys of two parts that identify rows, if no part alone does."""
    single = {parts: _evidence([parts], left, right) for parts, names in compared if names >= 0}
    if any(each.identity > 0.95 and each.matched > 0.5 for each in single.values()):
        return
    names_of, order = dict(compared), [field.parts for field in left.fields]
    for one, other in combinations(single, 2):
        if any(one[side].parts == other[side].parts for side in (0, 1)):
            continue
        both = _evidence([one, other], left, right)
        keeps = both.matched >= 0.9 * min(single[one].matched, single[other].matched)
        if keeps and both.shared and both.identity > 0.95:
            names = (names_of[one] + names_of[other]) / 2
            key = sorted((one, other), key=lambda parts: order.index(parts[0].parts))
            yield _key_pair(key, names, left, right)


def _without_ambiguity(pairs: list[KeyPair], *, is_self_join: bool) -> list[KeyPair]:
    """Two keys of equal evidence that match different rows are both weak."""
    if len(pairs) < 2 or pairs[0].strength > pairs[1].strength:
        return pairs
    best, second = pairs[:2]
    is_mirrored = is_self_join and (best.left, best.right) == (second.right, second.left)
    is_same = best.evidence.partners == second.evidence.partners
    if best.score - second.score > 0.1 or is_same or is_mirrored:
        return pairs
    return [replace(pair, strength=Strength.WEAK) for pair in (best, second)] + pairs[2:]
