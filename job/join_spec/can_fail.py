"""Whether the evaluation of an expression can fail on a record in Spark.

Under ANSI rules an invalid cast, an overflow, a division by zero or an index out of bounds is an
error. An expression is safe only if every node of its tree is known to be safe for the types of its
operands. Everything else can fail, including functions and types that this module does not know.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from job.evaluation.evaluator import constant_fails
from job.join_spec.expressions import Expression
from job.join_spec.sides import Side

ColumnTypes = Mapping[tuple[Side, str], str]
"""Declared type of each column, by side and name."""


def can_fail(expression: Expression, types: ColumnTypes) -> bool:
    """False only if Spark can evaluate `expression` on every record."""
    try:
        _Walk(types).kind(expression.tree)
    except _CanFailError:
        return True
    return False


class _CanFailError(Exception):
    """The first node that can fail; ends the walk."""


@dataclass(frozen=True)
class _Kind:
    """The part of a type that decides whether an operation can fail."""

    name: str
    """number, float, string, boolean, date, timestamp, interval, binary, null, map, or other."""
    digits: int = 0
    """Digits of a number before the decimal point, e.g. 3 for a TINYINT."""
    scale: int = 0
    """Digits of a number after the decimal point."""
    bits: int = 0
    """Width of an integer type. 0: DECIMAL."""
    values: str | None = None
    """Type of a map's values, as DDL. None: not a map."""


_FLOAT, _STRING, _BOOLEAN = _Kind("float"), _Kind("string"), _Kind("boolean")
_DATE, _TIMESTAMP, _INTERVAL = _Kind("date"), _Kind("timestamp"), _Kind("interval")
_BINARY, _NULL, _OTHER = _Kind("binary"), _Kind("null"), _Kind("other")
_INTEGERS = {
    "TINYINT": _Kind("number", 3, 0, 8),
    "SMALLINT": _Kind("number", 5, 0, 16),
    "INT": _Kind("number", 10, 0, 32),
    "BIGINT": _Kind("number", 20, 0, 64),
}
_INT = _INTEGERS["INT"]
_KINDS = {
    **_INTEGERS,
    "FLOAT": _FLOAT,
    "DOUBLE": _FLOAT,
    "STRING": _STRING,
    "BOOLEAN": _BOOLEAN,
    "DATE": _DATE,
    "TIMESTAMP": _TIMESTAMP,
    "BINARY": _BINARY,
}
_DIGITS_MAX = 38
_PRINTABLE = {"number", "float", "string", "boolean", "date", "timestamp", "binary"}
"""Kinds whose cast to STRING always succeeds; concat accepts them."""

# Argument kinds with which a call is safe, and the kind of its result. The last set applies to all
# further arguments.
_Signature = tuple[tuple[set[str], ...], _Kind]
_TEXT: tuple[set[str], ...] = ({"string", "null"},)
_NUMBER: tuple[set[str], ...] = ({"number", "float"},)
_TIME: tuple[set[str], ...] = ({"date", "timestamp"},)
_ANY: tuple[set[str], ...] = (_PRINTABLE | {"null", "map", "other", "interval"},)
_SIGNATURES: dict[type[exp.Expr], _Signature] = {
    **dict.fromkeys((exp.Lower, exp.Upper, exp.Trim), (_TEXT, _STRING)),
    exp.Length: (({"string", "binary"},), _INT),
    exp.Concat: ((_PRINTABLE - {"binary"},), _STRING),
    exp.ConcatWs: ((_PRINTABLE - {"binary"},), _STRING),
    exp.DPipe: ((_PRINTABLE - {"binary"},), _STRING),
    exp.Replace: (_TEXT, _STRING),
    exp.Reverse: (_TEXT, _STRING),
    exp.Substring: (({"string"}, {"int"}), _STRING),
    exp.Left: (({"string"}, {"int"}), _STRING),
    exp.Right: (({"string"}, {"int"}), _STRING),
    exp.Pad: (({"string"}, {"int"}, {"string"}), _STRING),
    exp.StartsWith: (_TEXT, _BOOLEAN),
    exp.EndsWith: (_TEXT, _BOOLEAN),
    exp.Contains: (_TEXT, _BOOLEAN),
    exp.StrPosition: (_TEXT, _INT),
    exp.MD5: (({"string", "binary"},), _STRING),
    exp.SHA2: (({"string", "binary"}, {"int"}), _STRING),
    exp.Hex: (({"string", "binary"},), _STRING),
    exp.ToBase64: (({"string", "binary"},), _STRING),
    **dict.fromkeys((exp.Year, exp.Month, exp.Day, exp.DayOfWeek), (_TIME, _INT)),
    **dict.fromkeys((exp.Hour, exp.Minute, exp.Second), (({"timestamp"},), _INT)),
    **dict.fromkeys((exp.UnixMillis, exp.UnixSeconds), (({"timestamp"},), _INTEGERS["BIGINT"])),
    exp.DateDiff: (_TIME, _INT),
    exp.TsOrDsToDate: (_TIME, _DATE),
    exp.Sqrt: (_NUMBER, _FLOAT),
    exp.Pow: (_NUMBER, _FLOAT),
    exp.Sign: (_NUMBER, _FLOAT),
    exp.IsNan: (({"float"},), _BOOLEAN),
    exp.Nanvl: (({"float"},), _FLOAT),
    exp.Abs: (({"float"},), _FLOAT),
    exp.Round: (({"float"}, {"int"}), _FLOAT),
    exp.ArraySize: (({"other", "map"},), _INT),
    exp.Struct: (_ANY, _OTHER),
}
_NAMED: dict[str, _Signature] = {
    "hash": (_ANY, _INT),
    "xxhash64": (_ANY, _INTEGERS["BIGINT"]),
    "crc32": (({"string", "binary"},), _INTEGERS["BIGINT"]),
}
_COMPARISONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ
)  # fmt: skip
_WITH_FORMAT = {"try_to_date", "try_to_timestamp"}
"""They fail for an invalid format."""
_TRIES: tuple[type[exp.Expr], ...] = (exp.SafeDivide, exp.SafeAdd, exp.SafeSubtract)


class _Walk:
    """Determines the kind of each node of an expression. _CanFailError if a node can fail."""

    def __init__(self, types: ColumnTypes) -> None:
        self._types = types
        self._rules: dict[type[exp.Expr], Callable[[exp.Expr], _Kind]] = {
            exp.Column: self._column,
            exp.Paren: lambda node: self.kind(node.this),
            exp.Literal: _literal,
            exp.Boolean: lambda _: _BOOLEAN,
            exp.Null: lambda _: _NULL,
            exp.Interval: lambda node: self._only_literals(node, _INTERVAL),
            exp.And: self._logic,
            exp.Or: self._logic,
            exp.Not: self._logic,
            exp.Is: self._is,
            exp.In: lambda node: self._compared([node.this, *node.expressions]),
            exp.Between: lambda node: self._compared(
                [node.this, node.args["low"], node.args["high"]]
            ),
            exp.Like: self._pattern,
            exp.RegexpLike: self._pattern,
            exp.Case: self._case,
            exp.If: self._if,
            exp.Coalesce: lambda node: self._alike([node.this, *node.expressions]),
            exp.Greatest: lambda node: self._alike([node.this, *node.expressions]),
            exp.Least: lambda node: self._alike([node.this, *node.expressions]),
            exp.Nullif: lambda node: self._alike([node.this, node.expression]),
            exp.Add: self._sum,
            exp.Sub: self._sum,
            exp.Mul: self._sum,
            exp.Div: self._division,
            exp.Mod: self._division,
            exp.IntDiv: self._division,
            exp.Neg: self._negation,
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
            exp.Dot: self._member,
            exp.Bracket: self._element,
            exp.Anonymous: self._named,
            exp.JSONExtractScalar: lambda node: self._fits([node.this], _TEXT, _STRING),
            exp.TimestampTrunc: lambda node: self._fits([node.this], ({"timestamp"},), _TIMESTAMP),
        }

    def _column(self, node: exp.Expr) -> _Kind:
        side: Side = "left" if node.text("table") == "left" else "right"
        return _declared(self._types.get((side, node.name)))

    def kind(self, node: exp.Expr) -> _Kind:
        rule = self._rules.get(type(node))
        if rule is not None:
            return rule(node)
        if isinstance(node, _COMPARISONS):
            return self._compared([node.this, node.expression])
        if isinstance(node, _TRIES):
            return self._tried([node.this, node.expression])
        signature = _SIGNATURES.get(type(node))
        if signature is None or node.args.get("format"):
            raise _CanFailError
        return self._fits(_arguments(node), *signature)

    def _fits(self, nodes: list[exp.Expr], wanted: tuple[set[str], ...], result: _Kind) -> _Kind:
        for index, node in enumerate(nodes):
            kind, allowed = self.kind(node), wanted[min(index, len(wanted) - 1)]
            is_int = "int" in allowed and 0 < kind.bits <= _INT.bits
            if not (is_int or kind.name in allowed):
                raise _CanFailError
        return result

    def _only_literals(self, node: exp.Expr, result: _Kind) -> _Kind:
        if node.find(exp.Column) is not None:
            raise _CanFailError
        return result

    def _logic(self, node: exp.Expr) -> _Kind:
        parts = [part for part in (node.this, node.args.get("expression")) if part is not None]
        return self._fits(parts, ({"boolean", "null"},), _BOOLEAN)

    def _is(self, node: exp.Expr) -> _Kind:
        self.kind(node.this)
        if isinstance(node.expression, exp.Boolean):  # Spark casts a STRING
            return self._fits([node.this], ({"boolean", "null"},), _BOOLEAN)
        if not isinstance(node.expression, exp.Null):
            raise _CanFailError
        return _BOOLEAN

    def _compared(self, nodes: list[exp.Expr]) -> _Kind:
        self._alike(nodes)
        return _BOOLEAN

    def _pattern(self, node: exp.Expr) -> _Kind:
        pattern = node.expression
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            raise _CanFailError
        return self._fits([node.this], _TEXT, _BOOLEAN)

    def _case(self, node: exp.Expr) -> _Kind:
        branches = node.args["ifs"]
        conditions = [branch.this for branch in branches]
        if node.this is not None:
            self._compared([node.this, *conditions])
        else:
            self._fits(conditions, ({"boolean"},), _BOOLEAN)
        default = node.args.get("default")
        results = [branch.args["true"] for branch in branches]
        return self._alike([*results, *([default] if default is not None else [])])

    def _if(self, node: exp.Expr) -> _Kind:
        self._fits([node.this], ({"boolean"},), _BOOLEAN)
        otherwise = node.args.get("false")
        return self._alike([node.args["true"], *([otherwise] if otherwise is not None else [])])

    def _alike(self, nodes: list[exp.Expr]) -> _Kind:
        """The common kind, if Spark can cast every node to it without a failure."""
        kinds = [kind for kind in map(self.kind, nodes) if kind is not _NULL]
        names = {kind.name for kind in kinds}
        if not kinds:
            return _NULL
        if names <= {"number", "float"} and "float" in names:
            return _FLOAT
        if len(names) > 1 or (names & {"other", "map"} and len(nodes) > 1):
            raise _CanFailError
        if names != {"number"}:
            return kinds[0]
        return _wider(kinds)

    def _sum(self, node: exp.Expr) -> _Kind:
        """+ - *: only floating point cannot overflow."""
        kinds = {self.kind(node.this).name, self.kind(node.expression).name}
        if kinds <= {"number", "float"} and "float" in kinds:
            return _FLOAT
        raise _CanFailError

    def _division(self, node: exp.Expr) -> _Kind:
        dividend, divisor = self.kind(node.this), node.expression
        is_number = isinstance(divisor, exp.Literal) and not divisor.is_string
        if not is_number or not float(divisor.name):
            raise _CanFailError
        kinds = {dividend.name, self.kind(divisor).name}
        if "float" in kinds and kinds <= {"number", "float"} and not isinstance(node, exp.IntDiv):
            return _FLOAT
        if not dividend.bits or not self.kind(divisor).bits:
            raise _CanFailError
        return _FLOAT if isinstance(node, exp.Div) else _wider([dividend, self.kind(divisor)])

    def _negation(self, node: exp.Expr) -> _Kind:
        kind = self.kind(node.this)
        if kind.name == "float" or isinstance(node.this, exp.Literal):
            return kind
        raise _CanFailError

    def _cast(self, node: exp.Expr) -> _Kind:
        literal = node.this
        target = _declared(node.args["to"].sql(dialect="spark"))
        if isinstance(literal, exp.Literal) and not constant_fails(node):
            return target
        source = self.kind(literal)
        if node.args.get("safe") or source is _NULL or source == target:
            return target
        if target is _STRING and source.name in _PRINTABLE:
            return target
        widens = (
            source.name == target.name == "number"
            and source.digits <= target.digits
            and source.scale <= target.scale
        )
        is_safe = {
            ("number", "float"), ("float", "float"), ("string", "binary"), ("timestamp", "date"),
            ("boolean", "float"),
        }  # fmt: skip
        widens |= source is _BOOLEAN and bool(target.bits)
        if (widens and _fits_bits(source, target)) or (source.name, target.name) in is_safe:
            return target
        raise _CanFailError

    def _member(self, node: exp.Expr) -> _Kind:
        """A field of a struct. Its type is not determined."""
        self.kind(node.this)
        return _OTHER

    def _element(self, node: exp.Expr) -> _Kind:
        """A map returns null for a missing key; an index outside of an array fails."""
        container = self.kind(node.this)
        if node.args.get("safe"):
            index = node.expressions[0]
            if container.name != "map" and (
                not isinstance(index, exp.Literal) or index.name == "0"
            ):
                raise _CanFailError  # try_element_at fails for the index 0
            return self._tried(node.expressions)
        key = node.expressions[0]
        if container.name != "map" or not isinstance(key, exp.Literal):
            raise _CanFailError
        return _declared(container.values)

    def _named(self, node: exp.Expr) -> _Kind:
        name = node.name.lower()
        if name in _WITH_FORMAT and any(
            not isinstance(part, exp.Literal) for part in node.expressions[1:]
        ):
            raise _CanFailError
        if name.startswith("try_"):
            return self._tried(node.expressions)
        if name not in _NAMED:
            raise _CanFailError
        return self._fits(node.expressions, *_NAMED[name])

    def _tried(self, nodes: list[exp.Expr]) -> _Kind:
        """try_… returns null instead of failing, but its arguments can still fail."""
        for node in nodes:
            self.kind(node)
        return _OTHER


def _wider(kinds: list[_Kind]) -> _Kind:
    digits, scale = max(kind.digits for kind in kinds), max(kind.scale for kind in kinds)
    if all(kind.bits for kind in kinds):
        return max(kinds, key=lambda kind: kind.bits)
    if digits + scale > _DIGITS_MAX:
        raise _CanFailError
    return _Kind("number", digits, scale)


def _fits_bits(source: _Kind, target: _Kind) -> bool:
    return not target.bits or source is _BOOLEAN or 0 < source.bits <= target.bits


def _literal(node: exp.Expr) -> _Kind:
    if node.args.get("is_string"):
        return _STRING
    text = node.name
    if "e" in text.lower():
        return _FLOAT
    whole, _, fraction = text.partition(".")
    if not fraction and "." not in text:
        return _INT if int(text) < 2**31 else _INTEGERS["BIGINT"]
    return _Kind("number", len(whole.lstrip("0")), len(fraction))


@cache
def _declared(declared: str | None) -> _Kind:
    """The kind of a type in DDL. Nested and unknown types are `other`."""
    if declared is None:
        return _OTHER
    if declared in _KINDS:
        return _KINDS[declared]
    try:
        tree = sqlglot.parse_one(declared, dialect="spark", into=exp.DataType)
    except SqlglotError:
        return _OTHER
    parts = [part.sql(dialect="spark") for part in tree.expressions]
    if tree.this == exp.DType.DECIMAL:
        digits, scale = (int(part) for part in [*parts, "10", "0"][:2]) if parts else (10, 0)
        return _Kind("number", digits - scale, scale)
    if tree.this == exp.DType.MAP:
        return _Kind("map", values=parts[1])
    return _OTHER


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    """The arguments of a call in order, without units, zones and other non-expressions."""
    arguments: list[exp.Expr] = []
    for name in node.arg_types:
        part = node.args.get(name)
        parts = part if isinstance(part, list) else [part]
        if name not in {"unit", "zone", "position"}:
            arguments += [value for value in parts if isinstance(value, exp.Expr)]
    return arguments
