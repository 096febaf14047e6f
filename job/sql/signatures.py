"""The functions that a spec may call: their arguments and the type of the result.

This is the allow-list. All functions are deterministic and independent of the machine: a batch that
runs again must give the same rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from job.evaluation.sql_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DAY_TIME,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    VOID,
    YEAR_MONTH,
    SqlType,
    array_of,
    bounded_decimal,
    decimal_type,
)
from job.sql.arguments import (
    Accepted,
    Argument,
    ArgumentError,
    Input,
    check_comparable,
    record_cast,
    take,
)
from job.sql.coercion import can_cast, common_of, common_type
from job.sql.nodes import IN_ANALYSIS


@dataclass(frozen=True)
class Signature:
    least: int
    most: int | None
    """None: any number of arguments."""
    result: Callable[[Sequence[Argument]], SqlType]
    can_fail: bool = False
    """Whether the function can fail on arguments of valid types."""
    null_intolerant: bool = True
    """Whether an argument NULL makes the result NULL before Spark computes the other arguments."""


def _plain(
    *inputs: Accepted,
    gives: SqlType,
    least: int | None = None,
    casts: bool = True,
    can_fail: bool = False,
    null_intolerant: bool = True,
) -> Signature:
    """A function with a fixed result type. Inputs after the first `least` are optional."""

    def result(arguments: Sequence[Argument]) -> SqlType:
        for argument, accepted in zip(arguments, inputs, strict=False):
            take(argument, accepted, casts=casts)
        return gives

    count = len(inputs) if least is None else least
    return Signature(count, len(inputs), result, can_fail, null_intolerant)


def _merging(*, strings: bool, least: int, ordered: bool = False) -> Signature:
    """A function whose arguments and result have one common type: coalesce, greatest."""

    def result(arguments: Sequence[Argument]) -> SqlType:
        kind = common_of((argument.type for argument in arguments), strings=strings)
        if kind is None:
            raise ArgumentError(f"{_listed(arguments)} have no type in common: cast them to one")
        if ordered and not kind.is_orderable:
            raise ArgumentError(f"{arguments[0].text} is {kind}, which Spark does not compare")
        for argument in arguments:
            record_cast(argument, kind)
        return kind

    return Signature(least, None, result, can_fail=True, null_intolerant=False)


def _listed(arguments: Sequence[Argument]) -> str:
    return ", ".join(f"{argument.text} ({argument.type})" for argument in arguments)


def _abs(arguments: Sequence[Argument]) -> SqlType:
    if arguments[0].type == STRING:
        return take(arguments[0], DOUBLE)
    return take(arguments[0], ("NUMERIC", DAY_TIME, YEAR_MONTH), casts=False)


def _ceil(arguments: Sequence[Argument]) -> SqlType:
    if len(arguments) == 2:
        return _round(arguments, accepted="DECIMAL")
    kind = take(arguments[0], (DOUBLE, "DECIMAL", BIGINT))
    if not kind.is_decimal:
        return BIGINT
    return bounded_decimal(kind.precision - kind.scale + 1, 0) if kind.scale else kind


def _round(arguments: Sequence[Argument], accepted: Accepted = "NUMERIC") -> SqlType:
    kind = take(arguments[0], accepted)
    if len(arguments) == 1:
        digits: object = 0
    else:
        take(arguments[1], INT)
        _constant(arguments[1], "the digits to keep", has_type=kind.is_decimal)
        if accepted == "DECIMAL" and not arguments[1].type.is_integral:
            raise ArgumentError(f"{arguments[1].text} must be a whole number")
        digits = 0 if arguments[1].type == VOID else arguments[1].constant
    if not kind.is_decimal or not isinstance(digits, int):
        return kind
    whole = kind.precision - kind.scale + 1
    if digits < 0:
        return decimal_type(min(max(whole, -digits + 1), 38), 0)
    scale = min(kind.scale, digits)
    return decimal_type(min(whole + scale, 38), scale)


def _constant(argument: Argument, what: str, *, has_type: bool = True) -> None:
    """`has_type`: whether Spark needs the value for the types."""
    if not argument.is_constant:
        raise ArgumentError(f"{argument.text} must be a constant: {what}")
    if has_type:
        argument.node.meta[IN_ANALYSIS] = True


def _nullif(arguments: Sequence[Argument]) -> SqlType:
    check_comparable(arguments[0], arguments[1], "is compared with")
    return arguments[0].type


def _nanvl(arguments: Sequence[Argument]) -> SqlType:
    kinds = [take(argument, (DOUBLE, FLOAT)) for argument in arguments]
    return FLOAT if kinds == [FLOAT, FLOAT] else DOUBLE


def _concat(arguments: Sequence[Argument]) -> SqlType:
    kinds = [argument.type for argument in arguments]
    if kinds and all(kind.name == "ARRAY" for kind in kinds):
        return _merging(strings=True, least=0).result(arguments)
    if kinds and all(kind == BINARY for kind in kinds):
        return BINARY
    for argument in arguments:
        take(argument, STRING)
    return STRING


def _concat_ws(arguments: Sequence[Argument]) -> SqlType:
    take(arguments[0], STRING)
    for argument in arguments[1:]:
        take(argument, (array_of(STRING), STRING))
    return STRING


def _text_or_bytes(*others: Accepted, least: int | None = None) -> Signature:
    """A function of a STRING or BINARY with a result of the same type."""

    def result(arguments: Sequence[Argument]) -> SqlType:
        kind = take(arguments[0], (STRING, BINARY))
        for argument, accepted in zip(arguments[1:], others, strict=False):
            take(argument, accepted)
        return kind

    count = 1 + len(others)
    return Signature(count if least is None else least, count, result)


def _pad(arguments: Sequence[Argument]) -> SqlType:
    take(arguments[1], INT)
    texts = [arguments[0], *arguments[2:]]
    if all(argument.type == BINARY for argument in texts):
        return BINARY
    for argument in texts:
        take(argument, STRING)
    return STRING


def _part_of(arguments: Sequence[Argument]) -> SqlType:
    """startswith, endswith, contains."""
    if not all(argument.type == BINARY for argument in arguments):
        for argument in arguments:
            take(argument, STRING)
    return BOOLEAN


def _reverse(arguments: Sequence[Argument]) -> SqlType:
    return take(arguments[0], (STRING, "ARRAY"))


def _hash(kind: SqlType) -> Signature:
    def result(arguments: Sequence[Argument]) -> SqlType:
        for argument in arguments:
            if argument.type.holds("MAP"):
                raise ArgumentError(f"{argument.text} is {argument.type}, but a MAP has no hash")
        return kind

    return Signature(1, None, result, null_intolerant=False)


def _date_add(arguments: Sequence[Argument]) -> SqlType:
    take(arguments[0], DATE)
    days = arguments[1]
    if days.type == STRING:
        record_cast(days, INT)
    else:
        take(days, (INT, SMALLINT, TINYINT), casts=False)
    return DATE


def _date_sub(arguments: Sequence[Argument]) -> SqlType:
    """Spark negates the days, and a STRING has no negative INT."""
    if arguments[1].type == STRING:
        raise ArgumentError(
            f"{arguments[1].text} is STRING: write cast({arguments[1].text} as int)"
        )
    return _date_add(arguments)


def _regexp_replace(arguments: Sequence[Argument]) -> SqlType:
    for argument, accepted in zip(arguments, (STRING, STRING, STRING, INT), strict=False):
        take(argument, accepted)
    for position in arguments[3:]:
        _constant(position, "the position")
        if position.constant is None and position.type != VOID:
            raise ArgumentError(
                f"{position.text} is a constant that is not computed here: write its value"
            )
        if isinstance(position.constant, int) and position.constant < 1:
            raise ArgumentError(f"{position.text} must be 1 or more: the position")
    return STRING


def _cast_to(argument: Argument, target: SqlType) -> SqlType:
    """A function without a format is a cast in Spark."""
    if not can_cast(argument.type, target):
        raise ArgumentError(f"{argument.text} is {argument.type}, which has no cast to {target}")
    return target


def _to_date(arguments: Sequence[Argument]) -> SqlType:
    if len(arguments) == 1:
        return _cast_to(arguments[0], DATE)
    take(arguments[0], _TIME)
    take(arguments[1], STRING)
    return DATE


def _to_timestamp(arguments: Sequence[Argument]) -> SqlType:
    if len(arguments) == 1:
        return _cast_to(arguments[0], TIMESTAMP)
    if arguments[0].type.is_numeric:
        raise ArgumentError(f"{arguments[0].text} is {arguments[0].type}, which has no format")
    take(arguments[0], _TIME)
    take(arguments[1], STRING)
    return TIMESTAMP


def _element_at(arguments: Sequence[Argument]) -> SqlType:
    collection, index = arguments
    if collection.type.name == "ARRAY":
        take(index, INT)
        if index.type not in {INT, SMALLINT, TINYINT}:
            raise ArgumentError(f"{index.text} is {index.type}, but must be INT")
        return collection.type.inside("element")
    if collection.type.name == "MAP":
        key = collection.type.inside("key")
        kind = common_type(key, index.type, strings=False)
        if kind is None or not kind.is_orderable:
            raise ArgumentError(f"{index.text} is {index.type}, but the keys are {key}")
        return collection.type.inside("value")
    raise ArgumentError(f"{collection.text} is {collection.type}, but must be an ARRAY or a MAP")


def _array_contains(arguments: Sequence[Argument]) -> SqlType:
    array, value = arguments
    if array.type.name != "ARRAY":
        raise ArgumentError(f"{array.text} is {array.type}, but must be an ARRAY")
    kind = common_type(array.type.inside("element"), value.type, strings=False)
    if kind is None or value.type == VOID or not kind.is_orderable:
        raise ArgumentError(
            f"{value.text} is {value.type}, but the elements are {array.type.inside('element')}"
        )
    return BOOLEAN


_TIME: tuple[Input, ...] = (STRING, DATE, TIMESTAMP)

SIGNATURES: dict[str, Signature] = {
    "abs": Signature(1, 1, _abs, can_fail=True),
    "ceil": Signature(1, 2, _ceil, can_fail=True, null_intolerant=False),
    "floor": Signature(1, 2, _ceil, can_fail=True, null_intolerant=False),
    "round": Signature(1, 2, _round, can_fail=True, null_intolerant=False),
    "sqrt": _plain(DOUBLE, gives=DOUBLE),
    "power": _plain(DOUBLE, DOUBLE, gives=DOUBLE),
    "sign": _plain((DOUBLE, YEAR_MONTH, DAY_TIME), gives=DOUBLE),
    "greatest": _merging(strings=False, least=2, ordered=True),
    "least": _merging(strings=False, least=2, ordered=True),
    "coalesce": _merging(strings=True, least=1),
    "nvl": Signature(
        2, 2, _merging(strings=True, least=2).result, can_fail=True, null_intolerant=False
    ),
    "nullif": Signature(2, 2, _nullif, can_fail=True, null_intolerant=False),
    "nanvl": Signature(2, 2, _nanvl, null_intolerant=False),
    "isnan": _plain((DOUBLE, FLOAT), gives=BOOLEAN, null_intolerant=False),
    "lower": _plain(STRING, gives=STRING),
    "upper": _plain(STRING, gives=STRING),
    "trim": _plain(STRING, STRING, gives=STRING, least=1, null_intolerant=False),
    "ltrim": _plain(STRING, STRING, gives=STRING, least=1, null_intolerant=False),
    "rtrim": _plain(STRING, STRING, gives=STRING, least=1, null_intolerant=False),
    "length": _plain((STRING, BINARY), gives=INT),
    "concat": Signature(1, None, _concat, null_intolerant=False),
    "concat_ws": Signature(1, None, _concat_ws, null_intolerant=False),
    "substring": _text_or_bytes(INT, INT, least=2),
    "substr": _text_or_bytes(INT, INT, least=2),
    "replace": _plain(STRING, STRING, STRING, gives=STRING, least=2),
    "split": _plain(STRING, STRING, INT, gives=array_of(STRING), least=2, can_fail=True),
    "left": _text_or_bytes(INT),
    "right": _plain(STRING, INT, gives=STRING, null_intolerant=False),
    "lpad": Signature(2, 3, _pad),
    "rpad": Signature(2, 3, _pad),
    "reverse": Signature(1, 1, _reverse),
    "startswith": Signature(2, 2, _part_of),
    "endswith": Signature(2, 2, _part_of),
    "contains": Signature(2, 2, _part_of),
    "instr": _plain(STRING, STRING, gives=INT),
    "regexp_extract": _plain(STRING, STRING, INT, gives=STRING, least=2, can_fail=True),
    "regexp_replace": Signature(3, 4, _regexp_replace, can_fail=True),
    "md5": _plain(BINARY, gives=STRING),
    "sha2": _plain(BINARY, INT, gives=STRING),
    "crc32": _plain(BINARY, gives=BIGINT),
    "hash": _hash(INT),
    "xxhash64": _hash(BIGINT),
    "hex": _plain((BIGINT, BINARY, STRING), gives=STRING),
    "base64": _plain(BINARY, gives=STRING),
    **dict.fromkeys(("year", "month", "day", "dayofweek"), _plain(DATE, gives=INT)),
    **dict.fromkeys(("hour", "minute", "second"), _plain(TIMESTAMP, gives=INT)),
    "date_trunc": _plain(STRING, TIMESTAMP, gives=TIMESTAMP, null_intolerant=False),
    "date_format": _plain(TIMESTAMP, STRING, gives=STRING, can_fail=True),
    "date_add": Signature(2, 2, _date_add),
    "date_sub": Signature(2, 2, _date_sub),
    "datediff": _plain(DATE, DATE, gives=INT),
    "to_date": Signature(1, 2, _to_date, can_fail=True, null_intolerant=False),
    "to_timestamp": Signature(1, 2, _to_timestamp, can_fail=True, null_intolerant=False),
    "unix_millis": _plain(TIMESTAMP, gives=BIGINT, casts=False),
    "unix_seconds": _plain(TIMESTAMP, gives=BIGINT, casts=False),
    "timestamp_millis": _plain("INTEGRAL", gives=TIMESTAMP, casts=False, can_fail=True),
    "timestamp_seconds": _plain("NUMERIC", gives=TIMESTAMP, casts=False, can_fail=True),
    "element_at": Signature(2, 2, _element_at, can_fail=True),
    "try_element_at": Signature(2, 2, _element_at),
    "try_to_date": _plain(_TIME, STRING, gives=DATE, least=1, null_intolerant=False),
    "try_to_timestamp": Signature(1, 2, _to_timestamp, null_intolerant=False),
    "size": _plain(("ARRAY", "MAP"), gives=INT, null_intolerant=False),
    "array_contains": Signature(2, 2, _array_contains),
    "get_json_object": _plain(STRING, STRING, gives=STRING, casts=False, null_intolerant=False),
}
"""By name in lower case. checker.py contains IF, STRUCT, NAMED_STRUCT and TRY_ADD etc."""
