"""Constants of an expression. Spark computes them during planning, and fails if one fails."""

from collections.abc import Callable

from sqlglot import exp

from job.evaluation.evaluator import compile_constant
from job.evaluation.intervals import interval
from job.evaluation.sql_types import DAY, DAY_TIME, STRING, YEAR_MONTH, SqlRuntimeError, SqlType
from job.sql.arguments import NOT_COMPUTED, Argument, ArgumentError
from job.sql.dialect import SpecSql, parse, shown
from job.sql.patterns import check_datetime_format, check_like, check_regex
from job.sql.signatures import SIGNATURES

_WITH_REGEX = {"rlike", "regexp_extract", "regexp_replace", "split"}
_WITH_FORMAT = {"date_format", "to_date", "to_timestamp", "try_to_date", "try_to_timestamp"}
_NEVER_FAIL = (
    exp.Literal, exp.Null, exp.Boolean, exp.Interval, exp.IntervalSpan, exp.Paren, exp.And, exp.Or,
    exp.Not, exp.Is, exp.DPipe, exp.Case, exp.If, exp.Trim, exp.Alias, exp.Identifier, exp.Var,
    exp.DataType, exp.DataTypeParam, exp.Dot, exp.Like, exp.RegexpLike, exp.Column,
)  # fmt: skip
_PATTERNS_CHECKED = {"split", "regexp_replace", "date_format"}


def check_constant(node: exp.Expr, argument_of: Callable[[exp.Expr], Argument]) -> None:
    """ArgumentError if Spark fails to compute `node`, which contains no column."""
    if isinstance(node, exp.Literal):
        return
    try:
        compile_constant(parse(node.sql(dialect=SpecSql))).run(())
    except SqlRuntimeError as error:
        reason = str(error).partition("] ")[2]
        raise ArgumentError(
            f"{shown(node)} is a constant that fails ({reason}): correct it, or use its try_ form, "
            "e.g. try_cast or try_divide, which returns NULL"
        ) from None
    except NOT_COMPUTED:  # accepted if no function in it can fail
        if any(_can_fail(part, argument_of) for part in node.walk()):
            raise ArgumentError(
                f"{shown(node)} is a constant that is not computed here: write its value"
            ) from None


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
    """ArgumentError for a constant pattern or format that fails with the first row."""
    if not arguments or not (isinstance(arguments[0], exp.Literal) and arguments[0].is_string):
        return
    pattern = arguments[0].name
    if function == "like":
        check_like(pattern)
    elif function in _WITH_REGEX:
        check_regex(pattern)
    elif function in _WITH_FORMAT:
        check_datetime_format(pattern, parses=function != "date_format")
