"""Functions of Spark SQL that are evaluated exactly as in Spark, by their nodes.

Other functions raise NotExactError in the evaluator: regular expressions are Java's, power() and
round() of a DOUBLE differ in the last digit, datetime formats are not implemented.
"""

import base64
import binascii
import hashlib
import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR

from sqlglot import exp

from job.evaluation.compiled import Compiled, Env, casted, strict
from job.evaluation.partitioning import murmur3
from job.evaluation.sql_arithmetic import TRIED
from job.evaluation.sql_cast import cast, fit
from job.evaluation.sql_nested import array_contains, compare, size
from job.evaluation.sql_time import (
    date_add,
    date_part,
    date_trunc,
    datediff,
    scaled_instant,
    time_part,
    unix,
)
from job.evaluation.sql_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INT_RANGES,
    STRING,
    TIMESTAMP,
    NotExactError,
    SqlRuntimeError,
    SqlType,
    Value,
    common_type,
    decimal_type,
)

Build = Callable[[exp.Expr, list[Compiled]], Compiled]


def _ascii(text: str, what: str) -> str:
    """`text`; NotExactError beyond ASCII: Java and Python use different versions of Unicode."""
    if not text.isascii():
        raise NotExactError(f"{what}() of text beyond ASCII")
    return text


def _strings(arguments: list[Compiled], what: str) -> list[Compiled]:
    for argument in arguments:
        if argument.type not in {STRING} and not argument.type.is_integral:
            raise NotExactError(f"{what}() of {argument.type}")
    return [casted(argument, STRING) for argument in arguments]


def _text(function: Callable[..., Value], result: SqlType, what: str, *, strings: int) -> Build:
    """A function whose first `strings` arguments are STRING and the others integral."""

    def build(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
        texts = _strings(arguments[:strings], what)
        for number in arguments[strings:]:
            if not number.type.is_integral:
                raise NotExactError(f"{what}() with a {number.type} for a number")
        return strict(function, result, *texts, *arguments[strings:])

    return build


def _substring(text: str, start: int, length: int) -> str:
    """UTF8String.substringSQL: positions from 1; 0 is 1; a negative one counts from the end."""
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = begin + length
    return text[max(begin, 0) : max(end, 0)]


_PADDED_CHARS_MAX = 10_000_000


def _pad(text: str, length: int, fill: str, *, left: bool) -> str:
    if length <= len(text) or not fill:
        return text[: max(length, 0)] if length <= len(text) else text
    if length > _PADDED_CHARS_MAX:
        raise NotExactError(f"a padding to {length} characters")
    missing = length - len(text)
    padding = (fill * (missing // len(fill) + 1))[:missing]
    return padding + text if left else text + padding


def _sha2(data: bytes, bits: int) -> str | None:
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return None if name is None else hashlib.new(name, data).hexdigest()


def _of_bytes(function: Callable[..., Value], result: SqlType, what: str) -> Build:
    def build(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
        if arguments[0].type not in {STRING, BINARY}:
            raise NotExactError(f"{what}() of {arguments[0].type}")
        return strict(function, result, casted(arguments[0], BINARY), *arguments[1:])

    return build


def _abs(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
    kind = _numeric(arguments[0], "abs")
    if kind.is_decimal:  # abs() rounds to 28 digits
        return strict(lambda value: value.copy_abs(), kind, arguments[0])
    if not kind.is_integral:
        return strict(abs, kind, arguments[0])
    high = INT_RANGES[kind.name][1]

    def magnitude(value: int) -> int:
        if abs(value) > high:
            raise SqlRuntimeError("ARITHMETIC_OVERFLOW", f"abs({value}) does not fit {kind}")
        return abs(value)

    return strict(magnitude, kind, arguments[0])


def _rounding(what: str, mode: str, of_double: Callable[[float], int]) -> Build:
    """ceil() and floor(), which differ only in the direction."""

    def build(node: exp.Expr, arguments: list[Compiled]) -> Compiled:
        kind = _numeric(arguments[0], what)
        if node.args.get("decimals") is not None:
            raise NotExactError(f"{what}() with two arguments")
        if kind.is_decimal:
            whole = decimal_type(max(kind.precision - kind.scale + (kind.scale > 0), 1), 0)
            return strict(
                lambda value: fit(value.to_integral_value(rounding=mode), whole),  # -0 is 0
                whole,
                arguments[0],
            )
        if kind.is_integral:
            return casted(arguments[0], BIGINT)

        def of_any_double(value: float) -> int:
            if math.isnan(value):  # as Java's cast of a double to a long
                return 0
            low, high = INT_RANGES["BIGINT"]
            if math.isinf(value) or not low <= of_double(value) <= high:
                raise SqlRuntimeError("ARITHMETIC_OVERFLOW", f"{what}({value})")
            return of_double(value)

        return strict(of_any_double, BIGINT, arguments[0])

    return build


def _round(node: exp.Expr, arguments: list[Compiled]) -> Compiled:
    kind = _numeric(arguments[0], "round")
    digits = node.args.get("decimals")
    if not kind.is_decimal or not (digits is None or _is_whole(digits)):
        raise NotExactError(f"round() of {kind}")
    scale = 0 if digits is None else int(digits.name)
    kept = min(scale, kind.scale)
    result = decimal_type(min(kind.precision - kind.scale + kept + 1, 38), kept)
    if scale >= kind.scale:
        result = decimal_type(min(kind.precision - kind.scale + kind.scale + 1, 38), kind.scale)
    return strict(lambda value: fit(value, result), result, arguments[0])


def _is_whole(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()


def _numeric(argument: Compiled, what: str) -> SqlType:
    if not argument.type.is_numeric:
        raise NotExactError(f"{what}() of {argument.type}")
    return argument.type


def _sqrt(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
    _numeric(arguments[0], "sqrt")
    return strict(
        lambda value: math.nan if value < 0 else math.sqrt(value),
        DOUBLE,
        casted(arguments[0], DOUBLE),
    )


def _sign(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
    _numeric(arguments[0], "sign")
    return strict(
        lambda value: value if math.isnan(value) or value == 0 else math.copysign(1.0, value),
        DOUBLE,
        casted(arguments[0], DOUBLE),
    )


def _isnan(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
    run = casted(arguments[0], DOUBLE).run
    return Compiled(BOOLEAN, lambda env: (value := run(env)) is not None and math.isnan(value))


def _nanvl(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
    kind = FLOAT if all(argument.type == FLOAT for argument in arguments) else DOUBLE
    first, second = (casted(argument, kind).run for argument in arguments)

    def run(env: Env) -> Value:
        value: float | None = first(env)
        if value is None or not math.isnan(value):
            return value
        result: float | None = second(env)
        return result

    return Compiled(kind, run)


def _hash(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
    for argument in arguments:
        if argument.type.fields or str(argument.type).startswith("INTERVAL"):
            raise NotExactError(f"hash() of {argument.type}")
    types = [str(argument.type).replace(" ", "") for argument in arguments]
    runs = [argument.run for argument in arguments]
    return Compiled(INT, lambda env: murmur3([run(env) for run in runs], types))


def _concat(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
    """Evaluates all arguments, also after one that is null."""
    runs = [text.run for text in _strings(arguments, "concat")]

    def run(env: Env) -> Value:
        parts = [part(env) for part in runs]
        return None if None in parts else "".join(parts)

    return Compiled(STRING, run)


def _concat_ws(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
    separator, *parts = (text.run for text in _strings(arguments, "concat_ws"))

    def run(env: Env) -> Value:
        between = separator(env)
        if between is None:
            return None
        joined: str = between.join(text for part in parts if (text := part(env)) is not None)
        return joined

    return Compiled(STRING, run)


def _extreme(what: str, better: Callable[[Value, Value], bool]) -> Build:
    """greatest() and least(), which skip nulls."""

    def build(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
        kind = arguments[0].type
        for argument in arguments[1:]:
            kind = common_type(kind, argument.type, what=what)
        runs = [casted(argument, kind).run for argument in arguments]

        def run(env: Env) -> Value:
            best = None
            for each in runs:
                value = each(env)
                if value is not None and (best is None or better(value, best)):
                    best = value
            return best

        return Compiled(kind, run)

    return build


def _trim(node: exp.Expr, arguments: list[Compiled]) -> Compiled:
    if node.args.get("expression") is not None:
        raise NotExactError("trim() of given characters")
    position = str(node.args.get("position") or "BOTH").upper()
    function = {"LEADING": str.lstrip, "TRAILING": str.rstrip, "BOTH": str.strip}[position]
    return strict(lambda text: function(text, " "), STRING, *_strings(arguments, "trim"))


def _to_date(node: exp.Expr, arguments: list[Compiled]) -> Compiled:
    if node.args.get("format") is not None:
        raise NotExactError("to_date() with a format")
    return casted(arguments[0], DATE)


def _try_to(target: SqlType) -> Build:
    """try_to_timestamp() and try_to_date() without a format, as try_cast."""

    def build(node: exp.Expr, arguments: list[Compiled]) -> Compiled:
        if len(arguments) != 1:
            raise NotExactError(f"{node.name.lower()}() with a pattern")
        convert = cast(arguments[0].type, target)

        def run(value: Value) -> Value:
            try:
                return convert(value)
            except SqlRuntimeError:
                return None

        return strict(run, target, arguments[0])

    return build


BUILDERS: dict[type[exp.Expr], Build] = {
    exp.Abs: _abs,
    exp.Ceil: _rounding("ceil", ROUND_CEILING, math.ceil),
    exp.Floor: _rounding("floor", ROUND_FLOOR, math.floor),
    exp.Round: _round,
    exp.Sqrt: _sqrt,
    exp.Sign: _sign,
    exp.IsNan: _isnan,
    exp.Nanvl: _nanvl,
    exp.Greatest: _extreme("greatest", lambda value, best: compare(value, best) > 0),
    exp.Least: _extreme("least", lambda value, best: compare(value, best) < 0),
    exp.Lower: _text(lambda a: _ascii(a, "lower").lower(), STRING, "lower", strings=1),
    exp.Upper: _text(lambda a: _ascii(a, "upper").upper(), STRING, "upper", strings=1),
    exp.Trim: _trim,
    exp.Length: _text(len, INT, "length", strings=1),
    exp.Concat: _concat,
    exp.DPipe: _concat,
    exp.ConcatWs: _concat_ws,
    exp.Substring: _text(
        lambda text, start, length=1 << 31: _substring(text, start, length),
        STRING, "substring", strings=1,
    ),
    exp.Replace: _text(
        lambda text, old, new="": text.replace(old, new) if old else text,
        STRING, "replace", strings=3,
    ),
    exp.Left: _text(lambda text, n: text[: max(n, 0)], STRING, "left", strings=1),
    exp.Right: _text(
        lambda text, n: text[max(len(text) - n, 0) :] if n > 0 else "", STRING, "right", strings=1
    ),
    exp.Reverse: _text(lambda text: text[::-1], STRING, "reverse", strings=1),
    exp.StartsWith: _text(str.startswith, BOOLEAN, "startswith", strings=2),
    exp.EndsWith: _text(str.endswith, BOOLEAN, "endswith", strings=2),
    exp.Contains: _text(lambda text, part: part in text, BOOLEAN, "contains", strings=2),
    exp.StrPosition: _text(lambda text, part: text.find(part) + 1, INT, "instr", strings=2),
    exp.MD5: _of_bytes(lambda data: hashlib.md5(data).hexdigest(), STRING, "md5"),  # noqa: S324
    exp.SHA2: _of_bytes(_sha2, STRING, "sha2"),
    exp.ToBase64: _of_bytes(lambda data: base64.b64encode(data).decode(), STRING, "base64"),
    exp.Year: date_part(lambda at: at.year),
    exp.Month: date_part(lambda at: at.month),
    exp.Day: date_part(lambda at: at.day),
    exp.DayOfWeek: date_part(lambda at: at.isoweekday() % 7 + 1),
    exp.Hour: time_part(3_600_000_000, 24),
    exp.Minute: time_part(60_000_000, 60),
    exp.Second: time_part(1_000_000, 60),
    exp.TimestampTrunc: date_trunc,
    exp.TsOrDsAdd: date_add,
    exp.DateDiff: datediff,
    exp.TsOrDsToDate: _to_date,
    exp.UnixMillis: unix(1_000),
    exp.UnixSeconds: unix(1_000_000),
    exp.ArraySize: size,
    exp.ArrayContains: array_contains,
    exp.SafeAdd: TRIED["try_add"],
    exp.SafeSubtract: TRIED["try_subtract"],
    exp.SafeMultiply: TRIED["try_multiply"],
    exp.SafeDivide: TRIED["try_divide"],
}  # fmt: skip

BUILDERS_BY_NAME: dict[str, Build] = {
    "crc32": _of_bytes(binascii.crc32, BIGINT, "crc32"),
    "hash": _hash,
    "timestamp_millis": scaled_instant(1_000),
    "timestamp_seconds": scaled_instant(1_000_000),
    "try_to_timestamp": _try_to(TIMESTAMP),
    "try_to_date": _try_to(DATE),
    **TRIED,
}

_BLANK = Compiled(STRING, lambda _: " ")
PADDING: Build = lambda node, arguments: _text(  # noqa: E731 - needs the node for its direction
    lambda text, fill, length: _pad(text, length, fill, left=bool(node.args.get("is_left"))),
    STRING, "lpad" if node.args.get("is_left") else "rpad", strings=2,
)(node, [arguments[0], (*arguments, _BLANK)[2], arguments[1]])  # fmt: skip
BUILDERS[exp.Pad] = PADDING
