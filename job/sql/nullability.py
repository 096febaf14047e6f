"""Whether an expression can be NULL as Spark's optimizer sees it. All columns can be NULL.

Spark replaces `x IS NULL` by FALSE if `x` cannot be NULL, and does not compute `x`.
"""

from sqlglot import exp

from job.evaluation.sql_types import DATE, INT_WIDTHS, TIMESTAMP, SqlType
from job.sql.coercion import may_become_null
from job.sql.nodes import field_of, is_call, is_null, is_value, operands, type_of

_NEVER = (exp.Is, exp.NullSafeEQ)
_ALWAYS = (exp.Column, exp.Bracket)
_DIVISIONS = (exp.Div, exp.Mod, exp.IntDiv)
_CALLS_NEVER = ("hash", "xxhash64", "isnan", "struct", "named_struct")
_CALLS_ALWAYS = (
    "ceil", "floor", "round", "sqrt", "sign", "sha2", "date_trunc", "element_at", "try_element_at",
    "array_contains", "get_json_object", "try_add", "try_subtract", "try_multiply", "try_divide",
    "try_mod",
)  # fmt: skip
_CASTS = {
    "to_date": DATE, "try_to_date": DATE, "to_timestamp": TIMESTAMP, "try_to_timestamp": TIMESTAMP,
    "timestamp_seconds": TIMESTAMP,
}  # fmt: skip


def nullable(node: exp.Expr) -> bool:
    if is_null(node):
        return True
    if is_value(node) or isinstance(node, _NEVER) or is_call(node, *_CALLS_NEVER):
        return False
    if isinstance(node, _ALWAYS) or is_call(node, *_CALLS_ALWAYS):
        return True
    if is_call(node, "coalesce", "greatest", "least"):
        return all(nullable(operand) for operand in operands(node))
    if isinstance(node, exp.Dot) and (field := field_of(node)) is not None:
        return nullable(field)
    return any(nullable(operand) for operand in _results(node)) or _may_become_null(node)


def _results(node: exp.Expr) -> list[exp.Expr]:
    """The operands whose NULL makes `node` NULL."""
    if isinstance(node, exp.If):
        return operands(node)[1:]
    if isinstance(node, exp.Case):
        results = [branch.args["true"] for branch in node.args["ifs"]]
        return [part.unnest() for part in (*results, node.args.get("default") or exp.Null())]
    return operands(node)[:1] if is_call(node, "concat_ws") else operands(node)


def _may_become_null(node: exp.Expr) -> bool:
    """Whether `node` can be NULL although its operands are not."""
    parts = operands(node)
    if isinstance(node, _DIVISIONS):
        return not type_of(node).is_interval
    if isinstance(node, exp.Dot):
        return type_of(parts[0]).name == "STRUCT"
    if isinstance(node, exp.Cast):
        source, target = type_of(parts[0]), type_of(node)
        is_tried = bool(node.args.get("safe"))
        return may_become_null(source, target) or (is_tried and _is_narrowed(source, target))
    for name, target in _CASTS.items():
        if is_call(node, name):
            has_format = len(parts) > 1
            return (
                name.startswith("try_")
                if has_format
                else may_become_null(type_of(parts[0]), target)
            )
    return False


def _is_narrowed(source: SqlType, target: SqlType) -> bool:
    integers = source.is_integral and target.is_integral
    return integers and INT_WIDTHS[source.name] > INT_WIDTHS[target.name]
