"""Evaluates the SQL of a spec on rows, as Spark in ANSI mode.

Includes three-valued logic, implicit casts and errors: an overflow or a bad cast, which fails the
query in Spark, raises SqlRuntimeError. An expression that cannot be evaluated exactly raises
NotExactError when it is compiled.
"""

from collections.abc import Callable, Mapping

from sqlglot import exp

from job.evaluation.compiled import Compiled, Env, casted, strict
from job.evaluation.like import like
from job.evaluation.sql_arithmetic import ARITHMETIC, negated
from job.evaluation.sql_cast import cast
from job.evaluation.sql_functions import BUILDERS, BUILDERS_BY_NAME
from job.evaluation.sql_literals import (
    constant,
    interval_literal,
    literal,
    number,
    typed_literal,
    with_suffix,
)
from job.evaluation.sql_nested import compare, element, field, struct
from job.evaluation.sql_types import (
    BOOLEAN,
    STRING,
    VOID,
    NotExactError,
    SqlRuntimeError,
    SqlType,
    Value,
    common_type,
)
from job.evaluation.type_trees import parse_type

Layout = Mapping[tuple[str, str], tuple[int, SqlType]]
"""Index in an Env and type of each column (side, name)."""


def compile_expression(tree: exp.Expr, layout: Layout) -> Compiled:
    """Compiles `tree`, whose columns are qualified left and right, to a function of a row."""
    return _Compiler(layout).compile(tree)


def compile_constant(tree: exp.Expr) -> Compiled:
    """Compiles `tree`, which contains no column; run it with an empty row."""
    return _Compiler({}, computes_constants=False).compile(tree)


def constant_fails(tree: exp.Expr) -> bool:
    """Whether `tree`, which contains no column, fails or cannot be evaluated exactly."""
    try:
        compile_constant(tree).run(())
    except (SqlRuntimeError, NotExactError):
        return True
    return False


def compile_predicate(tree: exp.Expr, layout: Layout) -> Callable[[Env], bool]:
    """Compiles a filter: a row passes if it is true, not if it is null."""
    compiled = compile_expression(tree, layout)
    if compiled.type not in {BOOLEAN, VOID}:
        raise NotExactError(f"a condition of type {compiled.type}")
    run = compiled.run
    return lambda env: run(env) is True


class _Compiler:
    def __init__(self, layout: Layout, *, computes_constants: bool = True) -> None:
        self._layout = layout
        self._computes_constants = computes_constants
        self._by_node: dict[type[exp.Expr], Callable[[exp.Expr], Compiled]] = {
            exp.Column: self._column,
            exp.Paren: lambda node: self.compile(node.this),
            exp.Literal: literal,
            exp.Boolean: lambda node: constant(BOOLEAN, bool(node.this)),
            exp.Null: lambda _: constant(VOID, None),
            exp.Interval: interval_literal,
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
            exp.And: self._and,
            exp.Or: self._or,
            exp.Not: self._not,
            exp.Neg: self._negated,
            exp.EQ: self._comparison(lambda order: order == 0),
            exp.NEQ: self._comparison(lambda order: order != 0),
            exp.LT: self._comparison(lambda order: order < 0),
            exp.LTE: self._comparison(lambda order: order <= 0),
            exp.GT: self._comparison(lambda order: order > 0),
            exp.GTE: self._comparison(lambda order: order >= 0),
            exp.NullSafeEQ: self._null_safe_equality,
            exp.NullSafeNEQ: lambda node: self._not_of(self._null_safe_equality(node)),
            exp.Is: self._is,
            exp.Between: self._between,
            exp.In: self._in,
            exp.Like: self._like,
            exp.Case: self._case,
            exp.If: self._if,
            exp.Coalesce: lambda node: self._coalesce([node.this, *node.expressions]),
            exp.Nullif: self._nullif,
            exp.Anonymous: self._named_function,
            exp.Bracket: self._element,
            exp.Dot: lambda node: field(self.compile(node.this), node.expression.name),
            exp.Struct: self._struct,
        }

    def compile(self, node: exp.Expr) -> Compiled:
        compiled = self._compiled(node)
        self._compute_constant(node, compiled)
        return compiled

    def _compute_constant(self, node: exp.Expr, compiled: Compiled) -> None:
        trivial = isinstance(node, (exp.Literal, exp.Null))
        if self._computes_constants and not trivial and node.find(exp.Column) is None:
            _refuse_constant_failure(node, compiled)

    def _compiled(self, node: exp.Expr) -> Compiled:
        kind = type(node)
        if kind in self._by_node:
            return self._by_node[kind](node)
        if kind in ARITHMETIC:
            return ARITHMETIC[kind](self.compile(node.this), self.compile(node.expression))
        if kind in BUILDERS:
            return BUILDERS[kind](node, [self.compile(part) for part in _arguments(node)])
        raise NotExactError(_name_of(node))

    def _column(self, node: exp.Expr) -> Compiled:
        assert isinstance(node, exp.Column)
        if (node.table, node.name) not in self._layout:
            raise NotExactError(f"{node.table}.{node.name}")
        index, kind = self._layout[node.table, node.name]
        return Compiled(kind, lambda env: env[index])

    def _named_function(self, node: exp.Expr) -> Compiled:
        build = BUILDERS_BY_NAME.get(node.name.lower())
        if build is None:
            raise NotExactError(_name_of(node))
        return build(node, [self.compile(part) for part in node.expressions])

    def _element(self, node: exp.Expr) -> Compiled:
        if len(node.expressions) != 1:
            raise NotExactError(_name_of(node))
        return element(node, self.compile(node.this), self.compile(node.expressions[0]))

    def _struct(self, node: exp.Expr) -> Compiled:
        parts = node.expressions
        named = [isinstance(part, exp.PropertyEQ) for part in parts]
        return struct(
            [
                part.name if is_named else f"col{n}"
                for n, (part, is_named) in enumerate(zip(parts, named, strict=True), start=1)
            ],
            [
                self.compile(part.expression if is_named else part)
                for part, is_named in zip(parts, named, strict=True)
            ],
        )

    def _cast(self, node: exp.Expr) -> Compiled:
        constant = with_suffix(node)
        if constant is not None:
            return constant
        target = parse_type(node.args["to"].sql(dialect="spark"))
        literal = node.this
        if type(node) is exp.Cast and isinstance(literal, exp.Literal) and literal.is_string:
            return typed_literal(literal.name, target)
        argument = self.compile(literal)
        function = cast(argument.type, target)
        if not node.args.get("safe"):
            return strict(function, target, argument)
        return strict(lambda value: _or_null(function, value), target, argument)

    def _boolean(self, node: exp.Expr) -> Callable[[Env], bool | None]:
        compiled = self.compile(node)
        if compiled.type not in {BOOLEAN, VOID}:
            raise NotExactError(f"a condition of type {compiled.type}")
        return compiled.run

    def _condition(self, node: exp.Expr) -> Callable[[Env], bool | None]:
        """Condition of CASE or IF, which must not be a bare NULL."""
        if self.compile(node).type == VOID:
            raise NotExactError("NULL as a condition")
        return self._boolean(node)

    def _and(self, node: exp.Expr) -> Compiled:
        return self._connective(node, decisive=False)

    def _or(self, node: exp.Expr) -> Compiled:
        return self._connective(node, decisive=True)

    def _connective(self, node: exp.Expr, *, decisive: bool) -> Compiled:
        """AND (`decisive` is False) or OR (True). A decisive left operand ends the evaluation."""
        left, right = self._boolean(node.this), self._boolean(node.expression)

        def run(env: Env) -> bool | None:
            first = left(env)
            if first is decisive:
                return decisive
            second = right(env)
            return decisive if second is decisive else None if first is None else second

        return Compiled(BOOLEAN, run)

    def _not(self, node: exp.Expr) -> Compiled:
        return self._not_of(Compiled(BOOLEAN, self._boolean(node.this)))

    def _not_of(self, compiled: Compiled) -> Compiled:
        return strict(lambda value: not value, BOOLEAN, compiled)

    def _negated(self, node: exp.Expr) -> Compiled:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return number(f"-{node.this.name}")
        return with_suffix(node) or negated(self.compile(node.this))

    def _pair(self, left: exp.Expr, right: exp.Expr) -> tuple[Compiled, Compiled]:
        """Both operands, cast to their common type."""
        first, second = self._alike([left, right], "a comparison")
        return first, second

    def _comparison(self, holds: Callable[[int], bool]) -> Callable[[exp.Expr], Compiled]:
        def build(node: exp.Expr) -> Compiled:
            left, right = self._pair(node.this, node.expression)
            return strict(lambda a, b: holds(compare(a, b)), BOOLEAN, left, right)

        return build

    def _null_safe_equality(self, node: exp.Expr) -> Compiled:
        left, right = (side.run for side in self._pair(node.this, node.expression))

        def run(env: Env) -> bool:
            a, b = left(env), right(env)
            return a is b if a is None or b is None else compare(a, b) == 0

        return Compiled(BOOLEAN, run)

    def _is(self, node: exp.Expr) -> Compiled:
        """IS NULL, IS TRUE, IS FALSE."""
        if isinstance(node.expression, exp.Null):
            run = self.compile(node.this).run
            return Compiled(BOOLEAN, lambda env: run(env) is None)
        if isinstance(node.expression, exp.Boolean):
            condition, wanted = self._boolean(node.this), bool(node.expression.this)
            return Compiled(BOOLEAN, lambda env: condition(env) is wanted)
        raise NotExactError(_name_of(node))

    def _between(self, node: exp.Expr) -> Compiled:
        value, low, high = node.this, node.args["low"], node.args["high"]
        return self._and(
            exp.And(
                this=exp.GTE(this=value.copy(), expression=low.copy()),
                expression=exp.LTE(this=value.copy(), expression=high.copy()),
            )
        )

    def _in(self, node: exp.Expr) -> Compiled:
        """True if an option equals the value; else null if the value or an option is null."""
        value, *options = (part.run for part in self._alike([node.this, *node.expressions], "IN"))

        def run(env: Env) -> bool | None:
            sought = value(env)
            if sought is None:
                return None
            null = False
            for option in options:
                candidate = option(env)
                if candidate is None:
                    null = True
                elif compare(sought, candidate) == 0:
                    return True
            return None if null else False

        return Compiled(BOOLEAN, run)

    def _like(self, node: exp.Expr) -> Compiled:
        text, pattern = self.compile(node.this), self.compile(node.expression)
        if text.type != STRING or pattern.type != STRING:
            raise NotExactError(f"LIKE of {text.type}")
        matches = strict(like, BOOLEAN, text, pattern)
        return self._not_of(matches) if node.args.get("negate") else matches

    def _case(self, node: exp.Expr) -> Compiled:
        """Evaluates only the branch whose condition is true."""
        subject = node.this
        conditions = [
            self._condition(
                exp.EQ(this=subject.copy(), expression=branch.this.copy())
                if subject is not None
                else branch.this
            )
            for branch in node.args["ifs"]
        ]
        default = node.args.get("default") or exp.Null()
        results = [branch.args["true"] for branch in node.args["ifs"]]
        *branches, otherwise = self._alike([*results, default], "CASE")

        def run(env: Env) -> Value:
            for condition, branch in zip(conditions, branches, strict=True):
                if condition(env) is True:
                    taken: Value = branch.run(env)
                    return taken
            result: Value = otherwise.run(env)
            return result

        return Compiled(otherwise.type, run)

    def _if(self, node: exp.Expr) -> Compiled:
        condition = self._condition(node.this)
        otherwise = node.args.get("false") or exp.Null()
        true, false = self._alike([node.args["true"], otherwise], "IF")
        return Compiled(true.type, lambda env: (true if condition(env) is True else false).run(env))

    def _coalesce(self, nodes: list[exp.Expr]) -> Compiled:
        parts = self._alike(nodes, "COALESCE")

        def run(env: Env) -> Value:
            for part in parts:
                value: Value = part.run(env)
                if value is not None:
                    return value
            return None

        return Compiled(parts[0].type, run)

    def _nullif(self, node: exp.Expr) -> Compiled:
        value = self.compile(node.this)
        equal = self._comparison(lambda order: order == 0)(node).run
        return Compiled(value.type, lambda env: None if equal(env) is True else value.run(env))

    def _alike(self, nodes: list[exp.Expr], what: str) -> list[Compiled]:
        """The expressions, cast to their common type."""
        parts = [self.compile(node) for node in nodes]
        kind = parts[0].type
        for part in parts[1:]:
            kind = common_type(kind, part.type, what=what)
        alike = [casted(part, kind) for part in parts]
        for node, part in zip(nodes, alike, strict=True):
            self._compute_constant(node, part)
        return alike


def _refuse_constant_failure(node: exp.Expr, compiled: Compiled) -> None:
    """Spark computes constants during planning: a failure fails the query without a row."""
    text = node.sql(dialect="spark")[:60]
    try:
        value = compiled.run(())
    except SqlRuntimeError as error:
        raise NotExactError(f"{text}, which fails: {error}") from error
    if value is None and compiled.type != VOID:  # Spark simplifies the operations around it
        raise NotExactError(f"{text}, which is always NULL")


def _or_null(function: Callable[[Value], Value], value: Value) -> Value:
    try:
        return function(value)
    except SqlRuntimeError:
        return None


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    """Operands of a function node in the order of its definition, without keywords."""
    operands: list[exp.Expr] = []
    for name in node.arg_types:
        part = node.args.get(name)
        parts = part if isinstance(part, list) else [part]
        if name not in {"unit", "zone", "decimals", "position"}:
            operands += [operand for operand in parts if isinstance(operand, exp.Expr)]
    return operands


def _name_of(node: exp.Expr) -> str:
    """Name of `node` for messages: of a function `name()`, otherwise its text."""
    text = node.sql(dialect="spark")
    name, call, _ = text.partition("(")
    return f"{name.lower()}()" if call and name.isidentifier() else text[:60]
