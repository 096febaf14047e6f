"""Operands of operators and functions: their types and the implicit casts of Spark."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from sqlglot import exp

from job.evaluation.sql_types import (
    BIGINT,
    DOUBLE,
    INT,
    INT_RANGES,
    PRECISION_MAX,
    STRING,
    VOID,
    SqlType,
    array_of,
    decimal_for,
    decimal_type,
)
from job.sql.coercion import can_store, common_type, string_as, tightest
from job.sql.dialect import shown
from job.sql.nodes import CAST, writes_cast

Family = Literal["NUMERIC", "INTEGRAL", "DECIMAL", "ARRAY", "MAP", "ANY"]
Input = SqlType | Family
Accepted = Input | tuple[Input, ...]
"""The type or family that an argument must have, or several: Spark casts to the first that fits."""

_DEFAULTS = {"NUMERIC": DOUBLE, "INTEGRAL": INT, "DECIMAL": decimal_type(38, 18)}
_NAMES = {
    "NUMERIC": "a number",
    "INTEGRAL": "a whole number",
    "DECIMAL": "a DECIMAL",
    "ARRAY": "an ARRAY",
    "MAP": "a MAP",
    "ANY": "anything",
}


class ArgumentError(ValueError):
    """An operand or a constant that Spark refuses."""


@dataclass(frozen=True)
class Argument:
    type: SqlType
    is_constant: bool
    node: exp.Expr
    constant: object = None
    """Value of a literal. None: the argument is not a literal, or NULL."""

    @property
    def text(self) -> str:
        """The argument as in the spec, for messages."""
        return shown(self.node)


def literal(node: exp.Literal, *, negative: bool = False) -> Argument:
    """1 is an INT, 3000000000 a BIGINT, 1.5 a DECIMAL(2,1), 1e3 a DOUBLE."""
    if node.is_string:
        return Argument(STRING, True, node, node.name)
    text = node.name
    if "e" in text.lower():
        if Decimal(text) and not 0 <= abs(float(text)) < float("inf"):
            raise ArgumentError(f"{text} is larger than any DOUBLE")
        return Argument(DOUBLE, True, node)
    if "." in text:
        digits = Decimal(text).as_tuple()
        scale = -int(digits.exponent)
        precision = max(len(digits.digits), scale)
        if precision > PRECISION_MAX:
            raise ArgumentError(f"{text} has more than {PRECISION_MAX} digits")
        return Argument(decimal_type(precision, scale), True, node)
    number = -int(text) if negative else int(text)
    for kind in (INT, BIGINT):
        low, high = INT_RANGES[kind.name]
        if low <= number <= high:
            return Argument(kind, True, node, int(text))
    if len(str(abs(number))) > PRECISION_MAX:
        raise ArgumentError(f"{text} has more than {PRECISION_MAX} digits")
    return Argument(decimal_type(len(str(abs(number))), 0), True, node)


def field_type(kind: SqlType, name: str, text: str) -> SqlType:
    """Type of `text.name`: a field of a STRUCT, of each STRUCT in an ARRAY, or a value of a MAP."""
    if kind.name == "ARRAY" and kind.inside("element").name == "STRUCT":
        return array_of(field_type(kind.inside("element"), name, text))
    if kind.name == "MAP" and kind.inside("key") == STRING:
        return kind.inside("value")
    if kind.name != "STRUCT":
        raise ArgumentError(f"{text} is {kind}, which has no field {name}")
    types = [inner for field, inner in kind.fields if field.lower() == name.lower()]
    if not types:
        known = ", ".join(field for field, _ in kind.fields)
        raise ArgumentError(f"{name} is not a field of {text}; its fields are {known}")
    if len(types) > 1:
        raise ArgumentError(f"{text} has two fields {name}")
    return types[0]


def accepted_type(kind: SqlType, accepted: Accepted, *, casts: bool = True) -> SqlType | None:
    """The type to which Spark casts an argument of `kind`. None: the argument is refused.

    Follows AnsiTypeCoercion.implicitCast. `casts`: False for functions that cast only NULL.
    """
    inputs = accepted if isinstance(accepted, tuple) else (accepted,)
    if any(_is(kind, wanted) for wanted in inputs):
        return kind
    if kind == VOID:
        return _default(inputs[0])
    if not casts:
        return None
    targets = (_cast_to(kind, wanted) for wanted in inputs)
    return next((target for target in targets if target is not None), None)


def _is(kind: SqlType, accepted: Input) -> bool:
    if isinstance(accepted, SqlType):
        return kind == accepted
    return {
        "NUMERIC": kind.is_numeric,
        "INTEGRAL": kind.is_integral,
        "DECIMAL": kind.is_decimal,
        "ANY": True,
    }.get(accepted, kind.name == accepted)


def _default(accepted: Input) -> SqlType | None:
    if isinstance(accepted, SqlType):
        return accepted
    return {"ARRAY": array_of(VOID), "MAP": None}.get(accepted, _DEFAULTS.get(accepted))


def _cast_to(kind: SqlType, accepted: Input) -> SqlType | None:
    if accepted == "DECIMAL" and kind.is_numeric:
        return decimal_for(kind)
    if accepted == "INTEGRAL":
        return None  # not even from strings
    if kind == STRING:
        if isinstance(accepted, SqlType):
            return accepted if accepted.is_atomic else None
        return _DEFAULTS.get(accepted)
    if isinstance(accepted, SqlType) and accepted.name == kind.name == "ARRAY":
        element = accepted_type(kind.inside("element"), accepted.inside("element"))
        return None if element is None else array_of(element)
    target = _default(accepted)
    return target if target is not None and can_store(kind, target) else None


def _name(accepted: Accepted) -> str:
    if isinstance(accepted, tuple):
        return " or ".join(dict.fromkeys(_name(kind) for kind in accepted))
    return _NAMES[accepted] if isinstance(accepted, str) else str(accepted)


def take(argument: Argument, accepted: Accepted, *, casts: bool = True) -> SqlType:
    kind = accepted_type(argument.type, accepted, casts=casts)
    if kind is None:
        raise ArgumentError(f"{argument.text} is {argument.type}, but must be {_name(accepted)}")
    record_cast(argument, kind)
    return kind


def record_cast(argument: Argument, kind: SqlType) -> None:
    """Record that Spark casts the argument to `kind`, if a constant can fail in the cast."""
    if writes_cast(argument.type, kind):
        argument.node.meta[CAST] = kind


def check_comparable(left: Argument, right: Argument, verb: str) -> SqlType:
    """The type to which Spark casts both for a comparison; ArgumentError if there is none."""
    kind = comparison_type(left.type, right.type)
    if kind is None:
        raise ArgumentError(
            f"{left.text} ({left.type}) {verb} {right.text} ({right.type}), which Spark does not "
            "support: cast one to the type of the other"
        )
    if not kind.is_orderable:
        raise ArgumentError(
            f"{left.text} is {left.type}, and Spark does not compare values with a MAP: compare "
            "single elements, e.g. element_at(map, 'name')"
        )
    return kind


def comparison_type(left: SqlType, right: SqlType) -> SqlType | None:
    """The type to which Spark casts operands of `=` or `<`. None: it does not compare them."""
    if left.is_numeric and right.is_numeric:
        return common_type(left, right)
    return string_as(left, right) or tightest(left, right)
