"""ARRAY, MAP and STRUCT: element_at, try_element_at, a[i], a.b, size, array_contains, struct."""

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from job.evaluation.compiled import Compiled, Env, strict
from job.evaluation.sql_types import (
    BOOLEAN,
    INT,
    STRING,
    NotExactError,
    SqlRuntimeError,
    Value,
    struct_of,
)


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1, as Spark orders two values of one type.

    NaN equals NaN and is larger than other numbers; in an ARRAY or STRUCT null is the smallest.
    """
    if isinstance(left, tuple) and isinstance(right, tuple):
        for one, other in zip(left, right, strict=False):
            if one is None or other is None:
                order = (one is not None) - (other is not None)
            else:
                order = compare(one, other)
            if order:
                return order
        return (len(left) > len(right)) - (len(left) < len(right))
    if isinstance(left, float) and isinstance(right, float):
        left_nan, right_nan = left != left, right != right
        if left_nan or right_nan:
            return left_nan - right_nan
    return int(left > right) - int(left < right)


def element(node: exp.Expr, base: Compiled, index: Compiled) -> Compiled:
    """a[i], element_at(a, i) and try_element_at(a, i)."""
    kind = base.type.element
    counts_from_1, safe = bool(node.args.get("offset")), bool(node.args.get("safe"))
    if kind is None:
        raise NotExactError(f"an element of {base.type}")
    if base.type.name == "MAP":
        if index.type != STRING:
            raise NotExactError(f"an element of {base.type} by {index.type}")
        return strict(lambda pairs, key: _map_value(pairs, key), kind, base, index)
    if not index.type.is_integral:
        raise NotExactError(f"an element of {base.type} by {index.type}")
    find = _counted_from_1(safe=safe) if counts_from_1 else _counted_from_0
    return strict(find, kind, base, index)


def _map_value(pairs: Sequence[tuple[str, Value]], key: str) -> Value:
    return next((value for name, value in pairs if name == key), None)


def _counted_from_0(array: Sequence[Value], index: int) -> Value:
    if not 0 <= index < len(array):
        raise SqlRuntimeError("INVALID_ARRAY_INDEX", f"{index} of {len(array)} elements")
    return array[index]


def _counted_from_1(*, safe: bool) -> Callable[[Sequence[Value], int], Value]:
    def find(array: Sequence[Value], index: int) -> Value:
        if 0 < abs(index) <= len(array):
            return array[index - 1 if index > 0 else index]
        if index == 0:
            raise SqlRuntimeError("INVALID_INDEX_OF_ZERO", "elements are counted from 1")
        if safe:
            return None
        raise SqlRuntimeError(
            "INVALID_ARRAY_INDEX_IN_ELEMENT_AT", f"{index} of {len(array)} elements"
        )

    return find


def field(base: Compiled, name: str) -> Compiled:
    """A field of a STRUCT, by its name without case."""
    names = [field_name.casefold() for field_name, _ in base.type.fields]
    if base.type.name != "STRUCT" or name.casefold() not in names:
        raise NotExactError(f"the field {name} of {base.type}")
    index = names.index(name.casefold())
    return strict(lambda value: value[index], base.type.fields[index][1], base)


def size(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
    if arguments[0].type.element is None:
        raise NotExactError(f"size() of {arguments[0].type}")
    return strict(len, INT, arguments[0])


def array_contains(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
    """Null if the value is not found and an element is null."""
    array, sought = arguments
    if array.type.name != "ARRAY" or array.type.element != sought.type:
        raise NotExactError(f"array_contains() of {array.type} and {sought.type}")

    def contains(values: Sequence[Value], value: Value) -> bool | None:
        if any(element is not None and compare(element, value) == 0 for element in values):
            return True
        return None if None in values else False

    return strict(contains, BOOLEAN, array, sought)


def struct(names: Sequence[str], values: Sequence[Compiled]) -> Compiled:
    """struct() and named_struct()."""
    kind = struct_of(zip(names, (v.type for v in values), strict=True))
    runs = [value.run for value in values]

    def run(env: Env) -> Value:
        return tuple(part(env) for part in runs)

    return Compiled(kind, run)
