"""Constants in an expression: Spark computes them while it plans, and fails where one fails."""

from collections.abc import Callable

from sqlglot import exp
from sqlglot.errors import SqlglotError

from job.evaluation.evaluator import compile_constant
from job.evaluation.intervals import interval
from job.evaluation.sql_types import SqlRuntimeError
from job.sql.arguments import Argument, ArgumentError
from job.sql.dialect import SpecSql, parse, shown
from job.sql.patterns import check_datetime_format, check_like, check_regex
from job.sql.signatures import SIGNATURES
from job.sql.types import DAY, DAY_TIME, STRING, VOID, YEAR_MONTH, SqlType

_WITH_REGEX = {"rlike", "regexp_extract", "regexp_replace", "split"}
_WITH_FORMAT = {"date_format", "to_date", "to_timestamp", "try_to_date", "try_to_timestamp"}
_NEVER_FAIL = (
    exp.Literal, exp.Null, exp.Boolean, exp.Interval, exp.IntervalSpan, exp.Paren, exp.And, exp.Or,
    exp.Not, exp.Is, exp.DPipe, exp.Case, exp.If, exp.Trim, exp.Alias, exp.Identifier, exp.Var,
    exp.DataType, exp.DataTypeParam, exp.Dot, exp.Like, exp.RegexpLike, exp.Column,
)  # fmt: skip
_NULL_INTOLERANT = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Neg, exp.Not, exp.Cast,
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like, exp.RegexpLike, exp.Dot,
    exp.Bracket, exp.Trim,
)  # fmt: skip
_PATTERNS_CHECKED = {"split", "regexp_replace", "date_format"}


def check_constant(node: exp.Expr, argument_of: Callable[[exp.Expr], Argument]) -> None:
    """ArgumentError where computing `node`, which mentions no column, fails."""
    if isinstance(node, exp.Literal):
        return
    text = node.sql(dialect=SpecSql)
    try:
        compile_constant(parse(text)).run(())
    except SqlRuntimeError as error:
        reason = str(error).partition("] ")[2]
        raise ArgumentError(
            f"{shown(node)} is a constant that fails ({reason}): correct it, or use its try_ form, "
            "e.g. try_cast or try_divide, which is NULL instead"
        ) from None
    except (ValueError, TypeError, LookupError, ArithmeticError, SqlglotError):
        # semantics/ does not compute it; most functions never fail.
        if any(_can_fail(part, argument_of) for part in node.walk()):
            raise ArgumentError(
                f"{shown(node)} is a constant that is not computed here: write its value"
            ) from None


def simplified(tree: exp.Expr, type_of: Callable[[exp.Expr], SqlType]) -> exp.Expr:
    """`tree` as it is when Spark computes its constants.

    TRUE replaces `x OR TRUE`, FALSE replaces `x AND FALSE`, and a NULL of the same type replaces
    an operator or a function with an operand that is NULL and makes the result NULL.
    """
    if not any(isinstance(node, (exp.Boolean, exp.Null)) for node in tree.walk()):
        return tree
    root = exp.paren(tree)
    nodes = list(zip(tree.walk(), root.this.walk(), strict=True))
    for original, copy in reversed(nodes):  # operands first
        value = _truth(copy) if isinstance(copy, (exp.And, exp.Or)) else None
        if value is not None:
            copy.replace(exp.Boolean(this=value))
        elif _is_null(copy):
            copy.replace(typed_null(type_of(original)))
    simple: exp.Expr = root.this
    return simple


_TYPE = "sql_type"


def typed_null(kind: SqlType) -> exp.Null:
    node = exp.Null()
    node.meta[_TYPE] = kind
    return node


def null_type(node: exp.Null) -> SqlType:
    """VOID for a NULL of the user."""
    kind = node.meta_get(_TYPE)
    return kind if isinstance(kind, SqlType) else VOID


def _is_null(node: exp.Expr) -> bool:
    """Whether NullPropagation replaces `node`, whose operands are simplified."""
    if isinstance(node, exp.Paren):
        return isinstance(node.this, exp.Null)
    if isinstance(node, (exp.In, exp.Between)):
        return isinstance(node.this, exp.Null)
    if isinstance(node, exp.Anonymous):
        signature = SIGNATURES.get(node.name.lower())
        is_intolerant = signature is None or signature.null_intolerant
    else:
        is_intolerant = isinstance(node, _NULL_INTOLERANT)
    return is_intolerant and any(
        isinstance(operand, exp.Null) for operand in node.iter_expressions()
    )


def _truth(node: exp.Expr) -> bool | None:
    """None: it depends on a row."""
    if isinstance(node, exp.Paren):
        return _truth(node.this)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Not):
        value = _truth(node.this)
        return None if value is None else not value
    if not isinstance(node, (exp.And, exp.Or)):
        return None
    values = [_truth(node.this), _truth(node.expression)]
    absorbing = isinstance(node, exp.Or)
    if absorbing in values:
        return absorbing
    return None if None in values else not absorbing


def _can_fail(node: exp.Expr, argument_of: Callable[[exp.Expr], Argument]) -> bool:
    if any(isinstance(child, exp.Null) for child in node.iter_expressions()):
        return False
    if isinstance(node, exp.Anonymous):
        name = node.name.lower()
        signature = SIGNATURES.get(name)
        return signature is not None and signature.can_fail and name not in _PATTERNS_CHECKED
    if isinstance(node, exp.Cast):
        return not node.args.get("safe") and argument_of(node).type != STRING
    return not isinstance(node, _NEVER_FAIL)


def interval_type(node: exp.Interval) -> SqlType:
    """Of an interval literal; ArgumentError where Spark cannot read it."""
    try:
        length = interval(node)
    except ValueError as error:
        raise ArgumentError(f"{error}: write e.g. interval 10 seconds") from None
    unit = node.args.get("unit")
    if length.months:
        return YEAR_MONTH
    name = unit.name.upper().removesuffix("S") if isinstance(unit, exp.Var) else ""
    if name in {"MONTH", "YEAR"}:
        return YEAR_MONTH
    return DAY if name == "DAY" else DAY_TIME


def check_pattern(function: str, *arguments: exp.Expr) -> None:
    """Of a constant pattern or format, which fails with the first row if it is wrong."""
    if not arguments or not (isinstance(arguments[0], exp.Literal) and arguments[0].is_string):
        return
    pattern = arguments[0].name
    if function == "like":
        check_like(pattern)
    elif function in _WITH_REGEX:
        check_regex(pattern)
    elif function in _WITH_FORMAT:
        check_datetime_format(pattern, parses=function != "date_format")
