"""Constants of an expression. Spark computes them during planning, and fails if one fails."""

from sqlglot import exp
from sqlglot.errors import SqlglotError

from job.errors import PicklableError
from job.evaluation.evaluator import compile_constant
from job.evaluation.intervals import interval
from job.evaluation.sql_types import (
    BOOLEAN,
    DAY,
    DAY_TIME,
    STRING,
    YEAR_MONTH,
    SqlRuntimeError,
    SqlType,
)
from job.sql.arguments import ArgumentError
from job.sql.dialect import SpecSql, parse
from job.sql.filters import group_by_side, propagate_constants
from job.sql.nodes import (
    IS_IMPLICIT,
    VALUE,
    as_written,
    constants_of,
    is_call,
    is_conditional,
    is_null,
    is_value,
    null_of,
    operands,
    replace,
    type_of,
    typed,
)
from job.sql.patterns import check_datetime_format, check_like, check_regex
from job.sql.signatures import SIGNATURES
from job.sql.simplification import propagate_nulls, simplify

_WITH_REGEX = {"rlike", "regexp_extract", "regexp_replace", "split"}
_WITH_FORMAT = {"date_format", "to_date", "to_timestamp", "try_to_date", "try_to_timestamp"}
_NEVER_FAIL = (
    exp.Literal, exp.Null, exp.Boolean, exp.Interval, exp.Paren, exp.And, exp.Or, exp.Not, exp.Is,
    exp.DPipe, exp.Case, exp.If, exp.Trim, exp.Dot, exp.Like, exp.RegexpLike, exp.In, exp.EQ,
    exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ,
)  # fmt: skip
_PATTERNS_CHECKED = {"split", "regexp_replace", "date_format"}
_COMPUTES_ALL = ("concat", "concat_ws", "greatest", "least", "hash", "xxhash64", "struct")
"""Functions that compute all arguments, also after one that is NULL."""
_FAILED = "has_failed"
"""Key of `meta`: set for a constant that failed in a branch. Spark does not compute it again."""
_UNKNOWN = object()
"""Value of a constant that cannot fail and that the evaluation does not support."""
_ROUNDS_MAX = 20

_NOT_COMPUTED = (ValueError, TypeError, LookupError, ArithmeticError, SqlglotError)
"""Errors of the evaluation for an expression that it does not support."""


class _FailureError(PicklableError):
    """A constant fails, or the evaluation does not support it."""

    def __init__(self, node: exp.Expr, reason: str) -> None:
        super().__init__(reason)
        self.node = node
        self.reason = reason
        """Empty: the constant is not computed here."""


def check_constants(root: exp.Expr, *, is_filter: bool = False) -> None:
    """Raises ArgumentError if Spark fails to compute a constant of `root`, a tree of `analyzed`.

    Follows the order of Spark's optimizer, which repeats its rules until nothing changes.
    `is_filter`: whether rows pass if `root` is true.
    """
    if is_filter:
        group_by_side(root)
    try:
        for _ in range(_ROUNDS_MAX):
            changes = [
                propagate_nulls(root),
                is_filter and propagate_constants(root),
                _compute(root),
                simplify(root),
            ]
            if not any(changes):
                return
    except _FailureError as failure:
        raise ArgumentError(_message(failure)) from None


def check_constant(node: exp.Expr) -> None:
    """Raises ArgumentError if `node`, which contains no column, fails."""
    try:
        _value(node)
    except _FailureError as failure:
        raise ArgumentError(_message(failure)) from None


def is_false(node: exp.Expr) -> bool:
    """Whether `node` is a constant with the value FALSE."""
    try:
        return node.find(exp.Column) is None and _value(node) is False
    except _FailureError:
        return False


def _message(failure: _FailureError) -> str:
    node, text = failure.node, as_written(failure.node)
    if not failure.reason:
        return f"{text} is a constant that is not computed here: write its value"
    if node.meta_get(IS_IMPLICIT):
        return f"{text} cannot be read as {type_of(node)}"
    return (
        f"{text} is a constant that fails ({failure.reason}): correct it, or use its try_ form, "
        "e.g. try_cast or try_divide, which returns NULL"
    )


def _compute(root: exp.Expr) -> bool:
    """ConstantFolding: a value for each of the largest parts without a column.

    In a branch that a row may not need, a constant that fails stays as it is.
    """
    constants = constants_of(root)

    def compute(node: exp.Expr, *, in_branch: bool) -> bool:
        if is_value(node):
            return False
        is_constant = id(node) in constants
        if is_conditional(node) and not is_constant:
            return compute_all(operands(node), in_branch=True)
        if node.meta_get(_FAILED):
            return False
        if not is_constant:
            return compute_all(operands(node), in_branch=in_branch)
        try:
            _set_value(node, _value(node))
        except _FailureError:
            if not in_branch:
                raise
            node.meta[_FAILED] = True
        return True

    def compute_all(nodes: list[exp.Expr], *, in_branch: bool) -> bool:
        changes = [compute(node, in_branch=in_branch) for node in nodes]
        return any(changes)

    return compute(root.unnest(), in_branch=False)


def _set_value(node: exp.Expr, value: object) -> None:
    if value is None:
        replace(node, null_of(type_of(node)))
    elif isinstance(value, bool):
        replace(node, typed(exp.Boolean(this=value), BOOLEAN))
    else:
        node.meta[VALUE] = True


def _value(node: exp.Expr) -> object:
    try:
        return compile_constant(parse(node.sql(dialect=SpecSql))).run(())
    except SqlRuntimeError as error:
        for part in operands(node):  # the smallest part that fails
            if not is_value(part):
                _value(part)
        raise _FailureError(node, str(error).partition("] ")[2]) from None
    except _NOT_COMPUTED:
        return _value_of_parts(node)


def _value_of_parts(node: exp.Expr) -> object:
    """NULL or unknown. The evaluation does not support `node`, but perhaps its operands."""
    is_lazy = is_conditional(node) or isinstance(node, (exp.And, exp.Or, exp.In))
    hides = not is_call(node, *_COMPUTES_ALL) and not isinstance(node, (exp.DPipe, exp.Is))
    for part in operands(node):
        try:
            value = None if is_null(part) else _UNKNOWN if is_value(part) else _value(part)
        except _FailureError as failure:
            raise _FailureError(failure.node, "" if is_lazy else failure.reason) from None
        if value is None and hides and not is_lazy:
            return None
    if _can_fail(node):
        raise _FailureError(node, "")
    return _UNKNOWN


def _can_fail(node: exp.Expr) -> bool:
    """Whether the operation itself can fail, whatever its operands are."""
    if isinstance(node, exp.Anonymous):
        name = node.name.lower()
        signature = SIGNATURES.get(name)
        if name == "try_element_at":  # only NULL for an index out of bounds
            return operands(node)[1].name == "0"
        return signature is not None and signature.can_fail and name not in _PATTERNS_CHECKED
    if isinstance(node, exp.Cast):
        return not node.args.get("safe") and type_of(node) != STRING
    return not isinstance(node, _NEVER_FAIL)


def interval_type(node: exp.Interval) -> SqlType:
    """Type of an interval literal; ArgumentError if Spark cannot parse it."""
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
    """Raises ArgumentError for a constant pattern or format that fails with the first row."""
    if not arguments or not (isinstance(arguments[0], exp.Literal) and arguments[0].is_string):
        return
    pattern = arguments[0].name
    if function == "like":
        check_like(pattern)
    elif function in _WITH_REGEX:
        check_regex(pattern)
    elif function in _WITH_FORMAT:
        check_datetime_format(pattern, parses=function != "date_format")
