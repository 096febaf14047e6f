"""The type of an expression, or the error of Spark's analysis, without Spark.

Follows the analysis of Spark 4.3 in ANSI mode: the type of a node follows from the types of its
operands. Messages contain the problem and the fix.
"""

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from job.evaluation.sql_literals import integer_with_suffix
from job.evaluation.sql_types import BOOLEAN, STRING, VOID, SqlType, struct_of
from job.sql.analyzed import analyzed
from job.sql.arguments import (
    Argument,
    ArgumentError,
    accepted_type,
    check_comparable,
    field_type,
    literal,
    record_cast,
    take,
)
from job.sql.arithmetic import TRY_SIGNS, arithmetic_type, negated_type, type_of_string
from job.sql.coercion import can_cast, common_of
from job.sql.constants import check_constant, check_constants, check_pattern, interval_type
from job.sql.ddl import parsed_type
from job.sql.dialect import IS_CALL, shown
from job.sql.nodes import typed
from job.sql.signatures import SIGNATURES

_SIGNS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_IGNORING = {"hour", "minute", "second"}

ALLOWED_FUNCTIONS = frozenset({*SIGNATURES, *TRY_SIGNS, "if", "struct", "named_struct"})


def type_of(tree: exp.Expr, columns: Mapping[str, SqlType], *, is_filter: bool = False) -> SqlType:
    """The type of an expression over `columns`, by their names in lower case.

    `tree`: parsed by `calls_as_written`; it is changed. Raises ValueError if the analysis of Spark
    fails or Spark fails to compute a constant.
    """
    kind = kind_of(tree, columns)
    for part in analyzed(tree, is_filter=is_filter):
        check_constants(part, is_filter=is_filter)
    return kind


def kind_of(tree: exp.Expr, columns: Mapping[str, SqlType]) -> SqlType:
    """As `type_of`, but computes no constants."""
    return _Checker(columns).of(tree).type


class _Checker:
    def __init__(self, columns: Mapping[str, SqlType]) -> None:
        self._columns = columns
        self._known: dict[int, Argument] = {}
        self._constant: dict[int, bool] = {}
        self._by_node: dict[type[exp.Expr], Callable[..., SqlType]] = {
            exp.Column: self._column,
            exp.Dot: self._dot,
            exp.Bracket: self._bracket,
            exp.Paren: lambda node: self.of(node.this).type,
            exp.Boolean: lambda _: BOOLEAN,
            exp.Null: lambda _: VOID,
            exp.Interval: interval_type,
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
            exp.And: self._connector,
            exp.Or: self._connector,
            exp.Not: self._not,
            exp.Neg: self._negated,
            exp.Is: self._is,
            exp.Between: self._between,
            exp.In: self._in,
            exp.Like: self._like,
            exp.RegexpLike: self._like,
            exp.DPipe: self._concat,
            exp.Case: self._case,
            exp.If: self._if,
            exp.Trim: self._trim,
            exp.Anonymous: self._call,
            **dict.fromkeys(_SIGNS, self._arithmetic),
            **dict.fromkeys(_COMPARISONS, self._comparison),
        }

    def of(self, node: exp.Expr) -> Argument:
        known = self._known.get(id(node))
        if known is None:
            known = self._known[id(node)] = self._argument(node)
        return known

    def _argument(self, node: exp.Expr) -> Argument:
        if isinstance(node, exp.Literal):
            constant = literal(node)
            typed(node, constant.type)
            return constant
        build = self._by_node.get(type(node))
        if isinstance(node, exp.Kwarg):
            raise ArgumentError(f"names the argument {node.this.name}: pass arguments by position")
        if build is None:
            raise ArgumentError(f"holds {shown(node)}, which a spec may not use")
        kind = build(node)
        typed(node, kind)
        return Argument(kind, self._is_constant(node), node, self._value(node))

    def _value(self, node: exp.Expr) -> object:
        """Value of a literal, also in parentheses or with a minus; None for other nodes."""
        if isinstance(node, exp.Paren):
            return self.of(node.this).constant
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
            inner = self.of(node.this).constant
            return -inner if isinstance(inner, int) else None
        return integer_with_suffix(node)

    def _is_constant(self, node: exp.Expr) -> bool:
        known = self._constant.get(id(node))
        if known is None:
            known = not isinstance(node, exp.Column) and all(
                self._is_constant(child) for child in node.iter_expressions()
            )
            self._constant[id(node)] = known
        return known

    def _column(self, node: exp.Column) -> SqlType:
        first, *members = [part.name for part in node.parts]
        kind = self._columns[first.lower()]
        for member in members:
            kind = field_type(kind, member, first)
        return kind

    def _dot(self, node: exp.Dot) -> SqlType:
        if not isinstance(node.expression, exp.Identifier):
            raise ArgumentError(f"{shown(node)} has a qualified name: remove the qualifier")
        return field_type(self.of(node.this).type, node.expression.name, shown(node.this))

    def _bracket(self, node: exp.Bracket) -> SqlType:
        collection = self.of(node.this)
        if len(node.expressions) != 1:
            raise ArgumentError(f"{shown(node)} must have one index")
        index = self.of(node.expressions[0])
        if collection.type.name == "MAP":
            take(index, collection.type.inside("key"))
            return collection.type.inside("value")
        if collection.type.name == "ARRAY":
            if not (index.type.is_integral or index.type == VOID):
                raise ArgumentError(
                    f"{index.text} is {index.type}, but an index must be a whole number"
                )
            if isinstance(index.constant, int) and index.constant < 0:
                raise ArgumentError(f"{shown(node)} fails: an index must be 0 or more")
            return collection.type.inside("element")
        if collection.type.name == "STRUCT" and isinstance(index.constant, str):
            return field_type(collection.type, index.constant, collection.text)
        raise ArgumentError(
            f"{collection.text} is {collection.type}: only an ARRAY or a MAP has an index"
        )

    def _cast(self, node: exp.Expr) -> SqlType:
        argument = self.of(node.this)
        target = parsed_type(node.args["to"])
        if type(node) is exp.Cast and not node.meta_get(IS_CALL):  # date'...', read by the parser
            check_constant(node)
        if not can_cast(argument.type, target):
            raise ArgumentError(
                f"{argument.text} is {argument.type}, which has no cast to {target}"
            )
        return target

    def _boolean(self, node: exp.Expr, what: str) -> None:
        argument = self.of(node)
        if argument.type not in {BOOLEAN, VOID}:
            raise ArgumentError(
                f"{argument.text} is {argument.type}, but {what} must be BOOLEAN: compare it, "
                "e.g. with `=` or IS NOT NULL"
            )

    def _connector(self, node: exp.Expr) -> SqlType:
        kinds = [self.of(node.this).type, self.of(node.expression).type]
        if set(kinds) != {BOOLEAN, STRING}:  # Spark casts a STRING next to a BOOLEAN
            for part in (node.this, node.expression):
                self._boolean(part, f"an operand of {type(node).__name__.upper()}")
        for part in (node.this, node.expression):
            record_cast(self.of(part), BOOLEAN)
        return BOOLEAN

    def _not(self, node: exp.Expr) -> SqlType:
        record_cast(self.of(node.this), BOOLEAN)
        if self.of(node.this).type != STRING:
            self._boolean(node.this, "the operand of NOT")
        return BOOLEAN

    def _negated(self, node: exp.Expr) -> SqlType:
        operand = self.of(node.this)
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return literal(node.this, negative=True).type
        kind = negated_type(operand.type)
        if kind is None:
            raise ArgumentError(f"{operand.text} is {operand.type}, which has no negative")
        return kind

    def _is(self, node: exp.Expr) -> SqlType:
        argument = self.of(node.this)
        if isinstance(node.expression, exp.Boolean):
            if argument.type != STRING:
                self._boolean(node.this, "the operand of IS TRUE")
            record_cast(argument, BOOLEAN)
        elif not isinstance(node.expression, exp.Null):
            raise ArgumentError(f"holds {shown(node)}, which a spec may not use")
        return BOOLEAN

    def _comparison(self, node: exp.Expr) -> SqlType:
        sides = [self.of(node.this), self.of(node.expression)]
        kind = check_comparable(sides[0], sides[1], "is compared with")
        for side in sides:
            record_cast(side, kind)
        return BOOLEAN

    def _between(self, node: exp.Expr) -> SqlType:
        value = self.of(node.this)
        for bound in ("low", "high"):
            check_comparable(value, self.of(node.args[bound]), "is compared with")
        return BOOLEAN

    def _in(self, node: exp.Expr) -> SqlType:
        arguments = [self.of(part) for part in (node.this, *node.expressions)]
        if len(arguments) == 1:
            raise ArgumentError(f"{shown(node)} has an empty list")
        self._merged(arguments, "in IN", ordered=True)
        return BOOLEAN

    def _merged(
        self, arguments: Sequence[Argument], where: str, *, ordered: bool = False
    ) -> SqlType:
        kind = common_of(argument.type for argument in arguments)
        if kind is None:
            listed = ", ".join(f"{argument.text} ({argument.type})" for argument in arguments)
            raise ArgumentError(f"{listed} {where} have no type in common: cast them to one")
        if ordered and not kind.is_orderable:
            raise ArgumentError(f"{arguments[0].text} is {kind}, which Spark does not compare")
        for argument in arguments:
            record_cast(argument, kind)
        return kind

    def _like(self, node: exp.Expr) -> SqlType:
        for part in (node.this, node.expression):
            argument = self.of(part)
            if accepted_type(argument.type, STRING) is None:
                raise ArgumentError(f"{argument.text} is {argument.type}, but must be STRING")
        check_pattern("rlike" if isinstance(node, exp.RegexpLike) else "like", node.expression)
        return BOOLEAN

    def _concat(self, node: exp.Expr) -> SqlType:
        return SIGNATURES["concat"].result([self.of(node.this), self.of(node.expression)])

    def _case(self, node: exp.Expr) -> SqlType:
        for branch in node.args["ifs"]:
            if node.this is not None:
                check_comparable(self.of(node.this), self.of(branch.this), "is compared with")
            else:
                self._condition(branch.this, "a condition of CASE")
        results = [self.of(branch.args["true"]) for branch in node.args["ifs"]]
        if node.args.get("default") is not None:
            results.append(self.of(node.args["default"]))
        return self._merged(results, "in CASE")

    def _condition(self, node: exp.Expr, what: str) -> None:
        self._boolean(node, what)
        if self.of(node).type == VOID:
            raise ArgumentError(f"{shown(node)} is {what}, which must be BOOLEAN: remove it")

    def _if(self, node: exp.Expr) -> SqlType:
        if node.args.get("false") is None:
            raise ArgumentError("if() takes 3 arguments")
        self._boolean(node.this, "the condition of IF")
        return self._merged([self.of(node.args["true"]), self.of(node.args["false"])], "in IF")

    def _trim(self, node: exp.Expr) -> SqlType:
        parts = [node.this, node.args.get("expression")]
        arguments = [self.of(part) for part in parts if part is not None]
        return SIGNATURES["trim"].result(arguments)

    def _arithmetic(self, node: exp.Expr) -> SqlType:
        return self._calculated(_SIGNS[type(node)], self.of(node.this), self.of(node.expression))

    def _calculated(self, sign: str, left: Argument, right: Argument) -> SqlType:
        kind = arithmetic_type(sign, left.type, right.type, (left.constant, right.constant))
        if kind is None:
            raise ArgumentError(
                f"{left.text} ({left.type}) {sign} {right.text} ({right.type}) cannot be computed: "
                "cast one to the type of the other"
            )
        for string, other in ((left, right), (right, left)):
            if string.type == STRING:
                record_cast(string, type_of_string(sign, other.type, kind))
        return kind

    def _call(self, node: exp.Anonymous) -> SqlType:
        name = node.name.lower()
        if name in {"struct", "named_struct"}:
            return self._struct(name, node)
        arguments = [self.of(part) for part in node.expressions]
        if name in TRY_SIGNS:
            _check_arity(name, len(arguments), 2, 2)
            return self._calculated(TRY_SIGNS[name], arguments[0], arguments[1])
        signature = SIGNATURES.get(name)
        if signature is None:
            raise ArgumentError(f"{name}() is not one of the functions allowed in a spec")
        _check_arity(name, len(arguments), signature.least, signature.most)
        try:
            kind = signature.result(arguments)
        except ArgumentError as error:
            raise ArgumentError(f"in {name}(), {error}") from None
        check_pattern(name, *node.expressions[1:])
        return kind

    def _struct(self, name: str, node: exp.Anonymous) -> SqlType:
        fields: list[tuple[str, SqlType]] = []
        if name == "named_struct":
            names, values = node.expressions[::2], node.expressions[1::2]
            if len(names) != len(values) or not names:
                raise ArgumentError("named_struct() takes pairs of name and value")
            for part, value in zip(names, values, strict=True):
                if not (isinstance(part, exp.Literal) and part.is_string):
                    raise ArgumentError(
                        f"in named_struct(), {shown(part)} must be a name in quotes"
                    )
                fields.append((part.name, self.of(value).type))
            return struct_of(fields)
        for index, part in enumerate(node.expressions):
            if isinstance(part, exp.Alias):
                fields.append((part.alias, self.of(part.this).type))
            else:
                field = part.name if isinstance(part, (exp.Column, exp.Dot)) else f"col{index + 1}"
                fields.append((field, self.of(part).type))
        return struct_of(fields)


def _check_arity(name: str, count: int, least: int, most: int | None) -> None:
    if count < least or (most is not None and count > most):
        wanted = (
            f"{least}"
            if least == most
            else f"{least} or more"
            if most is None
            else (f"{least} to {most}")
        )
        ignored = ": Spark ignores the others" if name in _IGNORING and count > least else ""
        raise ArgumentError(f"{name}() takes {wanted} arguments, but has {count}{ignored}")
